// Package adminapi is the plain chi server interface of DDL and administration,
// generated from the tags Databases, Tables and Server of openapi.yaml.
//
// It leaves to others: bodies (the generated decoding lets unknown fields, and
// fields that stand twice, pass), what the operations do, and errors.
package adminapi
