// Package jsonrow turns JSON objects into Arrow rows of a table and back.
//
// A [Decoder] knows the columns it expects and reads each object straight from
// its bytes into columns: no tree, no reflection, no float between an integer or
// decimal and its column. An [Encoder] does the reverse. [SplitBody] and [Lines]
// cut request bodies into the bytes of single objects without reading them
// further, and [FieldNames] lists the fields of one. docs/types.md is the table of JSON
// forms; e2e/testdata/types.json holds its extremes, and the tests run it.
//
// It leaves to others: HTTP, decompression and limits of whole bodies (rest),
// Arrow streams (package arrowrow), where rows go and what they change (router,
// storage).
//
// Invariants:
//
//	J1  An object is taken whole or not at all: when AddObject fails, the decoder
//	    is as it was before.
//	J2  What a decoder returns obeys the types of its columns: NOT NULL holds
//	    (but see Options.KeyOnly and deletes), strings are UTF-8 of allowed length,
//	    times are within their range and have no more digits than their precision.
//	J3  Nothing is rounded or cut in silence, except the binary floating point of
//	    FLOAT and DOUBLE, which takes the nearest value.
//	J4  Work and memory are bounded by the size of the input: depth is counted and
//	    not recursed into, except along the types of the columns.
//	J5  What an Encoder writes, a Decoder of the same columns reads back as the
//	    same values.
//
// Errors are *errs.Error values of one row, field path included ("tags[2].name").
// The code of text that is not JSON at all is invalid_request; every other code is
// one of the 422 codes.
//
// Values of the package are for one goroutine at a time.
package jsonrow
