// Package audit writes down who did what, to what, and how it ended: a JSON line an event,
// in a file that only its owner may read, and as rows of a table.
//
// A door begins a [Record] with a call, decisions note in it what was asked for
// ([Record.Ask]), and the door ends it with the outcome ([Record.End]); each thing that was
// asked for becomes an event, once a call. A call that is still under way after ten seconds,
// as streams are, writes its events then as well, with the outcome "begun".
//
// It leaves to others who decides (auth.Policy), and how rows get into a table ([Sink]).
//
// Invariants:
//
//	D1  No token, body, filter, key or value of a row is in an event; what a caller sent is
//	    in it as names only, clipped. A call that asks for very many things has an event
//	    that says how many more there were, by verb and decision; what was allowed is left
//	    out first.
//	D2  Events wait in queues of bounded length, one for the file and one for the table. When
//	    one is full, calls wait for room, at most ten seconds each, whether their caller is still
//	    there or not. What finds none is counted.
//	D3  A line is written whole or not at all; a file that was moved away is made anew.
//	D4  What cannot be written stays in its queue and is tried again every second, and
//	    [Log.Err] tells why; a write that takes more than ten seconds is one of that. Close
//	    tries once more, for ten seconds at most; what is left then is counted.
//	D5  Refused calls, and what changes tables, grants and quotas, are written whatever the
//	    verbs that were chosen.
//
// Describing a thing is part of doing anything to it: the event of a scan is one, of the verb
// read.
//
// File owned: the one that is named in the options.
//
// A Log may be used from any goroutine, a Record too.
package audit
