// Package openapi holds the description of the HTTP interface, what is generated
// from it, and the pages that show it.
//
// openapi.yaml is the source: every operation stands in it.
// From it come, by go generate (configured in generate.*.yaml):
//
//	types.gen.go         the types of bodies and parameters (this package)
//	adminapi             strict server of DDL and administration
//	dataapi              plain chi server of writes and reads
//	httpclient           the client that package client wraps
//
// overlay.yaml tells the generator what only Go needs to know, so that the
// document stays free of it; imports.tmpl is its file header without a package
// comment. errors.md explains every error code and is served at /docs/errors.
//
// It leaves to others: the handlers (package rest), rows, which are JSON text
// here (package row), and checking requests.
//
// Invariants, all tested:
//
//	O1  Every operation has an id in snake_case, tags and problem responses;
//	    the ids are also the names of Flight actions, "millrace.<id>".
//	O2  The codes a response names are codes of package errs with that status,
//	    and the enum of codes equals errs.Kinds().
//	O3  errors.md has one section for each code, in the order of errs.Kinds().
//	O4  Every operation says what its caller needs, x-millrace-verb: a verb, "known caller"
//	    or "none"; x-millrace-on: everything says that it is on no table or database.
//
// Everything here is immutable after the first use and safe for concurrent use.
package openapi

//go:generate go tool oapi-codegen -config generate.types.yaml openapi.yaml
//go:generate go tool oapi-codegen -config generate.admin.yaml openapi.yaml
//go:generate go tool oapi-codegen -config generate.data.yaml openapi.yaml
//go:generate go tool oapi-codegen -config generate.client.yaml openapi.yaml
