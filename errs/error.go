package errs

import (
	"errors"
	"fmt"
)

// MaxFieldErrors is the most field errors an answer lists.
const MaxFieldErrors = 100

// FieldError says what is wrong with one row or field of a request.
type FieldError struct {
	Index   *int64 `json:"index,omitempty"` // row in the request, from 0
	Field   string `json:"field,omitempty"`
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Error is an error with a code.
type Error struct {
	Code    Code
	Op      string // where, such as "segment.Seal"; may be empty
	Message string // for people; a sentence without a capital or full stop
	Err     error  // the cause, may be nil; not shown to users for Internal
	// Fields lists the rows and fields at fault, at most MaxFieldErrors.
	Fields []FieldError
	// Extra holds further members of the answer, such as "accepted" or "offsets".
	Extra map[string]any
	// RetryAfter is after how many seconds it may go better, when that is known; 0: as its
	// code says.
	RetryAfter int
}

// Wait is after how many seconds the request may be sent again; 0: no hint.
func (e *Error) Wait() int {
	if e.RetryAfter > 0 {
		return e.RetryAfter
	}
	return KindOf(e.Code).RetryAfterSeconds
}

// Error is "op: message: cause".
func (e *Error) Error() string {
	s := e.Message
	if s == "" {
		s = KindOf(e.Code).Title
	}
	if e.Op != "" {
		s = e.Op + ": " + s
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// New makes an error with a code and a message.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap gives err a code and says what was being done; nil stays nil.
func Wrap(code Code, op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: code, Op: op, Message: KindOf(code).Title, Err: err}
}

// Row makes an error about one field of one row of a request.
func Row(code Code, index int64, field, format string, args ...any) *Error {
	msg := fmt.Sprintf(format, args...)
	e := &Error{Code: code, Fields: []FieldError{{Index: &index, Field: field, Code: code, Message: msg}}}
	e.Message = fmt.Sprintf("row %d: %s", index, msg)
	if field != "" {
		e.Message = fmt.Sprintf("row %d, field %q: %s", index, field, msg)
	}
	return e
}

// Tell adds a member to the answer.
func (e *Error) Tell(key string, value any) {
	if e.Extra == nil {
		e.Extra = map[string]any{}
	}
	e.Extra[key] = value
}

// With adds a member to the answer and returns e, for errors made in one expression.
func (e *Error) With(key string, value any) *Error {
	e.Tell(key, value)
	return e
}

// CodeOf is the code of the outermost Error in err's chain; Internal when there
// is none, "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Internal
}

// Is says whether err has the code.
func Is(err error, code Code) bool { return err != nil && CodeOf(err) == code }
