package shardrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// An error is: its code · where · message · cause · text of the whole, when that says
// more · fields and further members, in JSON. Codes of ends of time are no codes of errs.
const (
	codeDeadline = "context.deadline"
	codeCanceled = "context.canceled"
)

// failureOf is an error as it goes over the wire.
func appendFailure(b []byte, err error) []byte {
	e, ok := errors.AsType[*errs.Error](err)
	switch {
	case ok:
	case errors.Is(err, context.DeadlineExceeded):
		e = &errs.Error{Code: codeDeadline}
	case errors.Is(err, context.Canceled):
		e = &errs.Error{Code: codeCanceled}
	default:
		e = &errs.Error{Code: errs.Internal, Message: errs.KindOf(errs.Internal).Title, Err: err}
		err = e
	}
	cause, whole := "", ""
	if e.Err != nil {
		cause = e.Err.Error()
	}
	if text := err.Error(); ok && text != e.Error() {
		whole = text
	}
	for _, s := range []string{string(e.Code), e.Op, e.Message, cause, whole} {
		b = appendBytes(b, s)
	}
	b = appendJSON(b, e.Fields, len(e.Fields) == 0)
	return appendJSON(b, e.Extra, len(e.Extra) == 0)
}

// appendJSON is a value in JSON; one that does not encode is left out, as a nil one is.
func appendJSON(b []byte, v any, none bool) []byte {
	if none {
		return append(b, 0)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return append(b, 0)
	}
	return appendBytes(b, text)
}

// failure reads an error.
func (d *decoder) failure() error {
	e := &errs.Error{Code: errs.Code(d.bytes()), Op: string(d.bytes()), Message: string(d.bytes())}
	cause, whole := string(d.bytes()), string(d.bytes())
	fields, extra := d.bytes(), d.bytes()
	if d.bad {
		return errBroken
	}
	if e.Code == codeDeadline {
		return context.DeadlineExceeded
	}
	if e.Code == codeCanceled {
		return errs.New(errs.NotOwner, "the process that owned the shard ended the call")
	}
	if cause != "" {
		e.Err = errors.New(cause)
	}
	if len(fields) > 0 && json.Unmarshal(fields, &e.Fields) != nil || len(extra) > 0 && unmarshalNumbers(extra, &e.Extra) != nil {
		d.fail()
		return errBroken
	}
	e.Extra = offsetsAsMade(e.Extra)
	if whole != "" {
		return &told{text: whole, err: e}
	}
	return e
}

// unmarshalNumbers keeps numbers as they are written: offsets are longer than a float.
func unmarshalNumbers(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	return dec.Decode(v)
}

// offsetsAsMade gives the member that says what logs hold the types that it was made of.
func offsetsAsMade(extra map[string]any) map[string]any {
	all, ok := extra["offsets"].(map[string]any)
	if !ok {
		return extra
	}
	made := make(map[string]any, len(all))
	for key, v := range all {
		text, err := json.Marshal(v)
		if err != nil {
			return extra
		}
		var of map[string]millrace.Offset
		if json.Unmarshal(text, &of) != nil {
			return extra
		}
		made[key] = of
	}
	extra["offsets"] = made
	return extra
}

// told is an error that said more around the one with a code.
type told struct {
	text string
	err  error
}

func (t *told) Error() string { return t.text }
func (t *told) Unwrap() error { return t.err }
