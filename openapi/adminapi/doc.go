// Package adminapi is the strict server interface of DDL and administration,
// generated from the tags Databases, Tables and Server of openapi.yaml: requests
// arrive decoded, answers are typed. Operations of later releases are not in it.
//
// It leaves to others: what the operations do, and how errors are rendered (the
// options of the handlers).
package adminapi
