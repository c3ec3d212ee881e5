package token

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// MaxToken is the longest token.
const MaxToken = 8 << 10

// maxNesting is how deep JSON may be nested.
const maxNesting = 16

// strictJSON refuses what two readers could understand differently, or that costs much to
// read: members that stand twice, text that is not UTF-8, what follows the value, and what is
// nested deeply.
func strictJSON(b []byte) error {
	if !utf8.Valid(b) {
		return errors.New("text that is not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := strictValue(dec, maxNesting); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something after the JSON")
	}
	return nil
}

// strictValue reads a value that may be nested so deep.
func strictValue(dec *json.Decoder, nesting int) error {
	t, err := dec.Token()
	if err != nil {
		return errNotJSON
	}
	if t != json.Delim('{') && t != json.Delim('[') {
		return nil
	}
	if nesting == 0 {
		return fmt.Errorf("nested deeper than %d", maxNesting)
	}
	seen := map[string]bool{}
	for dec.More() {
		if t == json.Delim('{') {
			name, err := dec.Token()
			s, ok := name.(string)
			if err != nil || !ok {
				return errNotJSON
			}
			if seen[s] {
				return errors.New("a member that stands twice")
			}
			seen[s] = true
		}
		if err := strictValue(dec, nesting-1); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil { // its end
		return errNotJSON
	}
	return nil
}

var errNotJSON = errors.New("not JSON")

// header is the header of a token.
type header struct{ alg, kid string }

// refusal is why a token is not good: a constant, for the log and the metric.
type refusal string

func (r refusal) Error() string { return string(r) }

// Why tokens are refused.
const (
	noToken      refusal = "none"      // shown
	badScheme    refusal = "scheme"    // not one header of "Bearer" and a token
	tooLong      refusal = "oversized" // longer than MaxToken
	malformed    refusal = "malformed" // not three parts of base64url, with JSON in the first two
	badHeader    refusal = "header"    // says what we do not do
	badAlgorithm refusal = "algorithm" // not one of ours, or not that of the key
	unknownKey   refusal = "key"       // no key of that kid
	badSignature refusal = "signature"
	expired      refusal = "expired"
	notYet       refusal = "not_yet"  // before nbf or iat
	tooFar       refusal = "lifetime" // no exp, or one that is too far
	wrongIssuer  refusal = "issuer"
	wrongAud     refusal = "audience"
	badClaims    refusal = "claims" // sub, groups or another that is not as it should be
	badCert      refusal = "certificate"
)

func refusals() []refusal {
	return []refusal{noToken, badScheme, tooLong, malformed, badHeader, badAlgorithm, unknownKey, badSignature, expired, notYet, tooFar, wrongIssuer, wrongAud, badClaims, badCert}
}

// bearer is the token that the headers show.
func bearer(authorization []string) (string, error) {
	if len(authorization) == 0 {
		return "", noToken
	}
	if len(authorization) > 1 {
		return "", badScheme
	}
	scheme, token, ok := strings.Cut(authorization[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", badScheme
	}
	token = strings.Trim(token, " ")
	if len(token) > MaxToken {
		return "", tooLong
	}
	return token, nil
}

// checkForm refuses what is not the compact form of a signed token, and reads its header.
// Nothing of it has been verified.
func checkForm(token string) (header, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return header{}, malformed // five are an encrypted one
	}
	for i, p := range parts {
		// The decoder skips line ends, and takes several spellings of the last character.
		b, err := base64.RawURLEncoding.Strict().DecodeString(p)
		if p == "" || err != nil || strings.ContainsAny(p, "\r\n") || i < 2 && (strictJSON(b) != nil || b[0] != '{') {
			return header{}, malformed
		}
		parts[i] = string(b)
	}
	return readHeader(parts[0])
}

func readHeader(text string) (header, error) {
	var m map[string]any
	if json.Unmarshal([]byte(text), &m) != nil {
		return header{}, malformed
	}
	// A header may carry keys or say where they are (jwk, jku, x5c, x5u): nobody looks there.
	for name, v := range m {
		switch name {
		case "crit", "b64", "cty", "enc", "zip":
			return header{}, badHeader // asks for what we do not do
		case "typ":
			s, ok := v.(string)
			if s = strings.TrimPrefix(strings.ToLower(s), "application/"); !ok || s != "jwt" && s != "at+jwt" {
				return header{}, badHeader
			}
		}
	}
	var h header
	var ok bool
	if h.alg, ok = m["alg"].(string); !ok {
		return header{}, badAlgorithm
	}
	if h.kid, ok = m["kid"].(string); !ok || h.kid == "" || len(h.kid) > maxKid {
		return header{}, unknownKey
	}
	return h, nil
}
