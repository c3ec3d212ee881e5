// Package token finds out who calls by a JSON Web Token: a [Verifier] is the
// auth.Authenticator of a server that has authentication on. It also makes the development
// key and signs tokens with it.
//
// Life of a token: the one Authorization header, "Bearer" and the token → remembered, when
// it was verified before → its form, strictly: size, alphabet, three parts, JSON without
// duplicates → the key that its `kid` names, read again when there is none → its signature,
// by the one algorithm that the key is for (golang-jwt) → its claims → an auth.Principal.
//
// Keys come from a [Source]: a file, an https address or the development key. They are read
// when a call needs them, not by a loop: again when they are refreshInterval old, and for an
// unknown `kid`, but not sooner than refetchPause after the last try; a file, when it has
// changed. Keys whose source does not answer are good for keysLife.
//
// It leaves to others: what a principal may do, and the header's way here (the doors).
//
// Invariants:
//
//	T1  Whatever is wrong, the answer is auth.ErrUnauthenticated; the log says, at level
//	    debug, and a metric counts what it was. Only when there are no keys at all the
//	    answer is errs.Unavailable.
//	T2  No part of a token leads to a key but by its `kid`, which is looked up in the keys
//	    that the source gave; a key is used with one algorithm alone, an asymmetric one.
//	T3  No token is good for longer than maxLife, or after the keys that signed it are
//	    gone; a remembered one is not either.
//	T4  Neither tokens nor private keys stand in a log, a metric or an error.
//	T5  Everything is bounded: a token (MaxToken), what a source gives (maxSet bytes,
//	    maxKeys keys, readTime), how often it is asked, and how many tokens are remembered.
//
// Files: keys.go (a set of keys), source.go and refresh.go (where they come from, and
// when), form.go, claims.go and
// verify.go (a token), remember.go, devkey.go and sign.go (the
// development key).
package token
