// Package sql is the SQL subset: it reads a statement, refuses by name what the
// subset has not, and runs the rest over catalog and router.
//
// The subset is described for users in docs/guides/sql.md: DDL, INSERT, DELETE by
// key, SELECT with filter, key order and limit on one table, and COUNT, SUM, MIN,
// MAX and AVG with GROUP BY. [Engine.Execute] runs one statement and gives a
// [Result], which is read batch after batch; [Split] cuts scripts into statements.
//
// A WHERE is a filter: its text is cut out of the statement by the lexer, which
// knows quotes, comments and parentheses, and handed with its parameters to
// package filter. Values of an INSERT become JSON rows and go through
// row/jsonrow, so that they are checked exactly as a write over HTTP. Reading,
// writing and looking up are the router's.
//
// It leaves to others: transports and their encodings (rest), sessions and scripts
// (the command line keeps the database of a USE), and every query that needs more
// than one table or more than one pass, which Flink, Spark or DuckDB do.
//
// Invariants:
//
//	Q1  Nothing is approximated: what cannot be answered exactly, within bounded
//	    memory, is refused. Sums of integers and decimals are exact whatever the
//	    order of the rows.
//	Q2  A statement is parsed whole, and its values are checked whole, before
//	    anything is written. Errors of the text name line and column.
//	Q3  A query holds at most maxHeldBytes of groups or of rows to sort, besides the
//	    batch at hand. INSERT holds one batch of a write.
//	Q4  The parser recurses only as deep as maxValueDepth and makes no tree of the
//	    values of an INSERT: its memory does not grow with them.
//
// An Engine is safe for concurrent use; a Result belongs to one goroutine.
package sql
