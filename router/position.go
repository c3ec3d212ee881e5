package router

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// PositionKind says how a position is given.
type PositionKind uint8

// The kinds of positions.
const (
	Earliest PositionKind = iota + 1
	Latest
	Full
	Never // until: go on
	AtTime
	AtOffsets
	AtCursor
)

// Position is a place in a table's log, for all its buckets.
type Position struct {
	Kind    PositionKind
	Time    time.Time
	Offsets map[string]millrace.Offset
	Cursor  string
}

// maxFuture is how far ahead of the server's clock a time may lie; it then means latest.
const maxFuture = time.Minute

// ParsePosition reads the text form: earliest, latest, full, never, an RFC 3339
// time, epoch milliseconds, an offsets object in JSON, or a cursor.
func ParsePosition(s string) (*Position, error) {
	switch s {
	case "earliest":
		return &Position{Kind: Earliest}, nil
	case "latest":
		return &Position{Kind: Latest}, nil
	case "full":
		return &Position{Kind: Full}, nil
	case "never":
		return &Position{Kind: Never}, nil
	}
	if strings.HasPrefix(s, cursorPrefix) {
		return &Position{Kind: AtCursor, Cursor: s}, nil
	}
	if strings.HasPrefix(strings.TrimSpace(s), "{") {
		p := &Position{}
		return p, p.UnmarshalJSON([]byte(s))
	}
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil {
		return positionAtMillis(ms)
	}
	// In a query an unescaped + of a zone reads as a space.
	if t, err := time.Parse(time.RFC3339Nano, strings.ReplaceAll(s, " ", "+")); err == nil {
		return &Position{Kind: AtTime, Time: t}, nil
	}
	return nil, badPosition(s)
}

func positionAtMillis(ms int64) (*Position, error) {
	const most = 253_402_300_800_000 // year 10000
	if ms < 0 || ms >= most {
		return nil, errs.New(errs.InvalidValue, "%d is not a time in milliseconds since 1970", ms)
	}
	return &Position{Kind: AtTime, Time: time.UnixMilli(ms)}, nil
}

func badPosition(s string) error {
	if len(s) > 64 {
		s = s[:64] + "…"
	}
	return errs.New(errs.InvalidValue, "%q is not a position: one of earliest, latest, full, an RFC 3339 time, milliseconds since 1970, an object of offsets such as {\"0\":17}, or a cursor that begins with c1.", s)
}

// UnmarshalJSON reads a string (as ParsePosition), a number of milliseconds or an
// object of offsets.
func (p *Position) UnmarshalJSON(b []byte) error {
	b = bytes.TrimSpace(b)
	var got *Position
	var err error
	switch {
	case len(b) > 0 && b[0] == '"':
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return errs.New(errs.InvalidValue, "the position does not read: %v", err)
		}
		got, err = ParsePosition(s)
	case len(b) > 0 && b[0] == '{':
		got = &Position{Kind: AtOffsets}
		if err := json.Unmarshal(b, &got.Offsets); err != nil {
			return errs.New(errs.InvalidValue, "offsets are an object of bucket keys and whole numbers, such as {\"0\":17}: %v", err)
		}
		for k, o := range got.Offsets {
			if o < 0 {
				return errs.New(errs.InvalidValue, "offset %d of bucket %q is negative", o, k)
			}
		}
	default:
		ms, perr := strconv.ParseInt(string(b), 10, 64)
		if perr != nil {
			return badPosition(string(b))
		}
		got, err = positionAtMillis(ms)
	}
	if err != nil {
		return err
	}
	*p = *got
	return nil
}

// MarshalJSON writes the form that UnmarshalJSON reads.
func (p Position) MarshalJSON() ([]byte, error) {
	if p.Kind == AtOffsets {
		return json.Marshal(p.Offsets)
	}
	return json.Marshal(p.String())
}

// String is the text form.
func (p Position) String() string {
	switch p.Kind {
	case Earliest:
		return "earliest"
	case Latest:
		return "latest"
	case Full:
		return "full"
	case Never:
		return "never"
	case AtTime:
		return p.Time.UTC().Format(time.RFC3339Nano)
	case AtOffsets:
		b, err := json.Marshal(p.Offsets)
		if err != nil {
			panic(err) // strings and integers always encode
		}
		return string(b)
	default:
		return p.Cursor
	}
}
