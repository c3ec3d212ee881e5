// Package tokentest is an issuer of tokens for tests, good and broken ones. It makes them
// of the standard library's cryptography alone, so that it shares no mistake with package
// token.
package tokentest
