// Package dataapi is the plain chi server interface of writes and reads,
// generated from the tags Write, Rows and Read of openapi.yaml. Bodies and
// answers are left to the handlers, which stream them: decoding rows by
// generated code would lose 64-bit integers and accept duplicate fields.
//
// The parameter pk, the exploded ?pk.<column>=<value> of row addresses, does not
// arrive in the parameter structs; handlers take it from the request's query.
package dataapi
