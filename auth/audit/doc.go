// Package audit writes down who did what, to what, and how it ended: a JSON line an event,
// in a file that only its owner may read.
//
// A door begins a [Record] with a call, decisions note in it what was asked for
// ([Record.Ask]), and the door ends it with the outcome; each thing that was asked for
// becomes an event, once a call. A stream writes its events when it begins as well, with
// the outcome "begun".
//
// It leaves to others who decides (auth.Policy), and what else is made of events ([Sink]).
//
// Invariants:
//
//	D1  No token, body, filter, key or value of a row is in an event; what a caller sent is
//	    in it as names only, clipped.
//	D2  Events wait in a queue of bounded length; when it is full, the call waits for room as
//	    long as it lives. What is not written then is counted, and [Log.Err] tells.
//	D3  A line is written whole or not at all; a file that was moved away is made anew.
//	D4  Close writes what was recorded before.
//
// File owned: the one that is named in the options.
//
// A Log may be used from any goroutine, a Record too.
package audit
