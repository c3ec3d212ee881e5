// Package icebergrest is a read-only Iceberg REST catalog
// (https://iceberg.apache.org/rest-catalog-spec/) below /iceberg: stock readers such as
// Spark, DuckDB and pyiceberg attach to it by address and find the lake tables; it answers what
// Trino is known to ask, too, which could not be tried.
//
// Databases are namespaces of one level; the tables that are kept in the lake are their
// tables, from creation on. What is read is always the newest metadata of the lake, so a
// reader sees a round as soon as it is committed.
//
// It leaves to others: what there is (package catalog), metadata and files of lake tables
// (package tier and its formats), Host check and draining (package server).
//
// Invariants:
//
//	I1  Nothing is changed through this door: commits are tiering's alone. The operations
//	    that `GET /v1/config` lists are those that are there, in the specification's
//	    spelling, since clients take it by the letter; every other one is refused.
//	I2  Every answer that is not a success has the specification's body, {"error":{…}}.
//	    Clients go by its status and type: what is not there is 404 with the exception
//	    that the operation names, whatever the reason that it is not there.
//	I3  A list without pageToken is whole, as the specification has it, or refused when it
//	    would have more than MaxListed names; it is never cut silently.
//	I4  Metadata is handed on as it lies in the lake, but for snapshots that the caller did
//	    not ask for.
package icebergrest
