// Package admit bounds the memory of what clients are sending and are being sent: the bodies
// of HTTP requests, the batches of Flight's writers and the rows of both, and the rows that
// are read for clients, all of a process together.
//
// A [Room] has so many bytes; there is one for what is received and one for what is sent, so
// that neither waits for the other. A [Hold] takes what has come of a body, piece by piece,
// and its rows once they are decoded, or what a reader has read and its client has not taken,
// and gives it back when it is done with. Who finds no room waits a while, and is refused
// with errs.Overloaded and a hint then, which lets go of what he holds.
//
// It leaves to others: how many bytes rows take (who decodes them), whose turn it is by
// principal (package auth/quota), and clients that stop sending or reading (the server's
// deadlines).
//
// Invariants:
//
//	M1  What is held is never more than the room. What is in memory already and must not be
//	    lost asks by Fit, and is done with also when there is no room for it: a reader's chunk
//	    takes more than is held for it then, one chunk of each reader at most.
//	M2  Nobody waits for ever. Who holds nothing may take half of the room, who holds something
//	    three quarters, and one of these alone the last quarter: so when all wait for each
//	    other, one goes on to his end, and then the next.
//	M3  A client holds what it has sent, not what it says it will send, and the rows that it
//	    is sent next, not all that it asked for. While others wait it holds that for slowHold
//	    at most. One that needs more than the room takes all of it.
//	M4  Those who hold something are served first, the others in the order they came; but
//	    one who does not fit is passed by some who do, maxPassed at most.
//
// A Room may be used from any goroutine, a Hold belongs to one.
package admit
