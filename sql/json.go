package sql

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// appendJSONText appends a JSON string. REQUIRES: s is valid UTF-8.
func appendJSONText(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"', c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// appendJSONNumber appends a number of SQL in the spelling of JSON, which wants
// digits on both sides of a point and no zeros in front.
func appendJSONNumber(dst []byte, s string) []byte {
	exponent := ""
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		s, exponent = s[:i], s[i:]
	}
	whole, fraction, _ := strings.Cut(s, ".")
	if whole = strings.TrimLeft(whole, "0"); whole == "" {
		whole = "0"
	}
	dst = append(dst, whole...)
	if fraction != "" {
		dst = append(append(dst, '.'), fraction...)
	}
	return append(dst, exponent...)
}

func decodeHex(digits string) ([]byte, error) { return hex.DecodeString(digits) }

func appendBase64(dst, b []byte) []byte { return base64.StdEncoding.AppendEncode(dst, b) }
