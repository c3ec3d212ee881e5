package jsonrow

import (
	"encoding/json"
	"fmt"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// maxDepth is the deepest that arrays and objects of a row are followed: the row,
// and for each level of a type at most two, as a MAP is an array of objects.
const maxDepth = 1 + 2*millrace.MaxTypeNesting

// Body is a request body such as {"rows":[…],"mode":"upsert","columns":["a"]},
// cut into its pieces. They are parts of the body's bytes.
type Body struct {
	// Items are the members of the list, such as the rows. Their brackets and strings
	// are balanced; nothing else about them is checked.
	Items [][]byte
	// Listed says that the list was there, though it may be empty.
	Listed bool
	// Members are the other members of the body, valid JSON each.
	Members map[string]json.RawMessage
}

// SplitBody cuts a body whose items stand in the member called list. It builds
// nothing, follows no nesting beyond what a row may have, and refuses a list of
// more than maxItems and members that stand twice.
func SplitBody(body []byte, list string, maxItems int) (Body, error) {
	b := Body{Members: map[string]json.RawMessage{}}
	err := walkObject(body, func(name []byte, i int) (int, error) {
		if string(name) != list {
			return b.member(body, i, string(name))
		}
		if b.Listed {
			return i, twice(list)
		}
		b.Listed = true
		return b.split(body, i, list, maxItems)
	})
	return b, err
}

// FieldNames are the field names of an object, in order. It is how a patch, in
// which an absent field keeps its value, becomes a partial row of these columns.
// The values are left for a Decoder to check, and so are names that stand twice.
func FieldNames(raw []byte) ([]string, error) {
	var names []string
	err := walkObject(raw, func(name []byte, i int) (int, error) {
		names = append(names, string(name))
		return skipValue(raw, i)
	})
	return names, err
}

// walkObject calls member for each member of the object that text is: its name,
// good for the call, and where its value begins; member returns where it ends.
func walkObject(text []byte, member func(name []byte, i int) (int, error)) error {
	i := skipSpace(text, 0)
	if i >= len(text) || text[i] != '{' {
		return broken(text, i, "want an object")
	}
	i = skipSpace(text, i+1)
	if i < len(text) && text[i] == '}' {
		return atEnd(text, i+1)
	}
	var scratch []byte
	for {
		if i >= len(text) || text[i] != '"' {
			return broken(text, i, "want a field name")
		}
		name, end, grown, bad := scanString(text, i, scratch[:0])
		if scratch = grown; bad != stringOK {
			return broken(text, i, bad.String())
		}
		if i = skipSpace(text, end); i >= len(text) || text[i] != ':' {
			return broken(text, i, "a colon is missing")
		}
		var err error
		if i, err = member(name, skipSpace(text, i+1)); err != nil {
			return err
		}
		i = skipSpace(text, i)
		if i < len(text) && text[i] == '}' {
			return atEnd(text, i+1)
		}
		if i >= len(text) || text[i] != ',' {
			return broken(text, i, "a comma is missing")
		}
		i = skipSpace(text, i+1)
	}
}

func atEnd(text []byte, i int) error {
	if i = skipSpace(text, i); i < len(text) {
		return broken(text, i, "there is more text after the object")
	}
	return nil
}

func (b *Body) member(body []byte, i int, name string) (end int, err error) {
	if _, ok := b.Members[name]; ok {
		return i, twice(name)
	}
	if end, err = skipValue(body, i); err != nil {
		return i, err
	}
	if !json.Valid(body[i:end]) {
		return i, broken(body, i, fmt.Sprintf("the value of %q is not well formed", clip([]byte(name))))
	}
	b.Members[name] = json.RawMessage(body[i:end])
	return end, nil
}

// split cuts the array at i.
func (b *Body) split(body []byte, i int, list string, maxItems int) (int, error) {
	if i >= len(body) || body[i] != '[' {
		if i < len(body) && (body[i] == '{' || body[i] == '"' || ended(body, i+1) || scanNumber(body, i) > 0) {
			return i, errs.New(errs.TypeMismatch, "%q must be an array", list)
		}
		return i, broken(body, i, fmt.Sprintf("%q must be an array", list))
	}
	i = skipSpace(body, i+1)
	if i < len(body) && body[i] == ']' {
		return i + 1, nil
	}
	for {
		end, err := skipValue(body, i)
		if err != nil {
			return i, err
		}
		if len(b.Items) == maxItems {
			return i, errs.New(errs.TooLarge, "%q has more than %d members", list, maxItems)
		}
		b.Items = append(b.Items, body[i:end])
		i = skipSpace(body, end)
		if i < len(body) && body[i] == ']' {
			return i + 1, nil
		}
		if i >= len(body) || body[i] != ',' {
			return i, broken(body, i, "a comma is missing")
		}
		i = skipSpace(body, i+1)
	}
}

// skipValue is the end of the value at i. It counts depth instead of recursing,
// and remembers the kinds of open brackets in the bits of a word.
func skipValue(body []byte, i int) (int, error) {
	depth := 0
	var objects uint64
	start := i
	for i < len(body) {
		switch c := body[i]; c {
		case '"':
			for i++; ; i += 2 {
				i, _ = plainEnd(body, i)
				if i >= len(body) {
					return i, broken(body, start, stringOpen.String())
				}
				if body[i] == '"' {
					break
				}
				if body[i] != '\\' {
					return i, broken(body, i, stringControl.String())
				}
			}
			i++
		case '{', '[':
			if depth == maxDepth {
				return i, broken(body, i, fmt.Sprintf("arrays and objects are nested more than %d deep", maxDepth))
			}
			objects <<= 1
			if c == '{' {
				objects |= 1
			}
			depth++
			i++
			continue
		case '}', ']':
			if depth == 0 || (c == '}') != (objects&1 == 1) {
				return i, broken(body, i, "a closing bracket has no opening one")
			}
			objects >>= 1
			depth--
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i, broken(body, i, "a value is missing")
			}
			i++
			continue
		default:
			from := i
			for i < len(body) && !ended(body, i) && body[i] != '"' && body[i] != ':' && body[i] != '{' && body[i] != '[' {
				i++
			}
			if i == from {
				i++
			}
		}
		if depth == 0 {
			return i, nil
		}
	}
	return i, broken(body, start, "the value has no end")
}

func broken(body []byte, i int, why string) error {
	if i < len(body) {
		return errs.New(errs.InvalidRequest, "not valid JSON: %s, at byte %d: %s", why, i, clip(body[i:]))
	}
	return errs.New(errs.InvalidRequest, "not valid JSON: %s, at the end of the body", why)
}

func twice(name string) error {
	return errs.New(errs.DuplicateField, "the field %q stands twice", clip([]byte(name)))
}
