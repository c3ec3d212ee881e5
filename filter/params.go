package filter

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/millrace/millrace/errs"
)

// maxNumberBytes is how long a number may be as a parameter.
const maxNumberBytes = MaxTextBytes

// readParams reads the JSON values of a filter's parameters, of which it wants
// that many.
func readParams(params []json.RawMessage, want int) ([]value, error) {
	if len(params) != want {
		return nil, errs.New(errs.InvalidFilter, "filter: every question mark takes one parameter; question marks: %d, parameters: %d", want, len(params))
	}
	values := make([]value, len(params))
	for i, raw := range params {
		v, problem := readParam(bytes.TrimSpace(raw))
		if problem != "" {
			return nil, errs.New(errs.InvalidFilter, "filter: parameter %d %s", i+1, problem)
		}
		values[i] = v
	}
	return values, nil
}

func readParam(raw []byte) (v value, problem string) {
	if !json.Valid(raw) || !utf8.Valid(raw) {
		return v, "is not JSON"
	}
	switch raw[0] {
	case 'n':
		return v, ""
	case 't', 'f':
		return value{kind: valueBool, yes: raw[0] == 't'}, ""
	case '"':
		v.kind = valueText
		if err := json.Unmarshal(raw, &v.str); err != nil {
			return v, "is not a JSON string: " + err.Error()
		}
		return v, ""
	case '[', '{':
		return v, "is an array or an object; a parameter is a text, a number, true, false or null"
	}
	if len(raw) > maxNumberBytes {
		return v, "is a number of too many digits"
	}
	n, ok := parseNumber(string(raw))
	if !ok {
		panic("filter: a JSON number that is none")
	}
	n.rounds = true
	return value{kind: valueNumber, num: n}, ""
}
