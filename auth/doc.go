// Package auth says who calls ([Principal], in the context of a request; an [Authenticator]
// finds out), and signs what the service hands out and takes back: Flight tickets and page
// tokens.
//
// A signed string proves that this cluster made it, for this purpose, not longer
// than its life ago. It is no credential: who presents it is authorised anew. Its
// payload is readable by anyone; nothing secret goes into it.
//
// It leaves to others: where keys are kept and when they change (package catalog),
// what a payload means (packages rest and flightsvc), what is in a caller's token
// (package token).
//
// Invariants:
//
//	A1  Nothing of a payload is looked at before its signature has been checked, in
//	    constant time.
//	A2  What was signed for one purpose is refused for any other.
//	A3  A life is at most [MaxLife], so a key may go one life after it has stopped
//	    signing, and what names an older key has expired.
//	A4  Whatever is wrong with what a caller shows, the answer is the same.
//
// A [Signer] serves one purpose and may be used concurrently.
package auth
