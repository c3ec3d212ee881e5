// Package filter is the filter language: it reads a filter text, checks it
// against columns, and says which rows of a batch it keeps, which batches and
// files it can skip, and which values of a key it pins.
//
// The language is described for users in docs/guides/filters.md. [Compile] reads
// and checks; every error of a filter comes from there, before any data is read.
// A [Filter] then answers four questions: [Filter.Select] (the rows of a batch
// for which the filter is TRUE), [Filter.MayMatch] (whether statistics leave room
// for such a row), [Filter.Pinned] (the only values a column can have in such a
// row, for finding buckets and keys) and [Filter.ColumnNames].
//
// It leaves to others: fetching columns, keeping statistics ([Stats] is their
// shape), hashing pinned values to buckets, and the meaning of system columns,
// which are columns like any other here.
//
// # Stages
//
// Text becomes tokens (lex.go), tokens an expression (parse.go, expr.go), an
// expression a tree of predicates (plan*.go). The expression knows no types and
// is what a SQL statement's WHERE can share. Planning removes NOT by pushing it
// down to the leaves and turns every literal into a place among the values of
// its column: "price < 9.995" on a DECIMAL(10,2) becomes "unscaled ≤ 999". What
// runs over rows are a few kernels without types of their own: an interval or a
// set of 64-bit keys, of decimals, of byte strings; LIKE; column against column.
//
// # Invariants
//
//	F1  Select is exact: the rows where the filter is TRUE under SQL's
//	    three-valued logic, rising, and no others.
//	F2  Predicates hold no NOT. AND and OR of predicates without NOT are TRUE
//	    exactly where all, or any, of their parts are TRUE, so a predicate needs to
//	    know where it is TRUE only; UNKNOWN and FALSE need not be told apart. The
//	    same holds for "can be TRUE" in MayMatch.
//	F3  Numbers compare by value across all numeric types, never through a
//	    narrower or rounded form. NaN equals itself and is above all numbers;
//	    -0.0 equals 0.0.
//	F4  A literal no value of the column can equal is no error: the comparison is
//	    decided for every value, and is UNKNOWN for NULL as ever.
//	F5  MayMatch is false only if no row of the described data is TRUE; what
//	    statistics do not say counts as possible.
//	F6  No text makes the parser recurse deeper than [MaxDepth] levels, and errors
//	    name the position (characters, from 1) and the offending word.
//
// # Why the parser is written by hand
//
// participle, the library we have for grammars, could read this one. It recurses
// as deep as the text nests, so the depth limit would need a second reader in
// front of it; its errors say what the grammar expects, not what the writer of a
// filter may have meant ("&&", "==", a text in double quotes); and DATE, TIME and
// TIMESTAMP, which are literals before a quoted text and ordinary names elsewhere,
// would need look-ahead in each rule. Written by hand it is recursive descent with
// three levels (OR, AND, NOT), some 400 lines with the messages. The price: a SQL
// parser made with participle hands the text after WHERE over to this one.
//
// # Concurrency
//
// A Filter is immutable and may be used by any number of goroutines, also on one
// batch at the same time. It keeps no reference to batches it has seen.
package filter
