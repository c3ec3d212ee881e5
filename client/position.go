package client

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/millrace/millrace/openapi"
)

// Position is a place in a table, as JSON text; the zero value is the default of
// the operation. See openapi.yaml, schema Position.
type Position = openapi.Position

// Positions that have names.
var (
	Earliest = Position(`"earliest"`) // the start of the log
	Latest   = Position(`"latest"`)   // its end
	Full     = Position(`"full"`)     // everything, then the log from exactly there
	Never    = Position(`"never"`)    // for Until
)

// AtTime is the first record at or after a time, in each bucket.
func AtTime(t time.Time) Position { return mustMarshal(t.UTC().Format(time.RFC3339Nano)) }

// AtOffsets is the next offset to read, by bucket key; buckets that are not named
// are read from their earliest.
func AtOffsets(offsets openapi.Offsets) Position { return mustMarshal(offsets) }

// AtCursor is where a cursor of an earlier answer stands.
func AtCursor(cursor string) Position { return mustMarshal(cursor) }

// ParsePosition reads a position as people write it: a word, a time, epoch
// milliseconds, a cursor, or offsets as a JSON object. The server checks it.
func ParsePosition(s string) Position {
	if s == "" {
		return nil
	}
	if json.Valid([]byte(s)) && (s[0] == '{' || s[0] >= '0' && s[0] <= '9') {
		return Position(s)
	}
	return mustMarshal(s)
}

// positionParam is a position as a query parameter: a string without its quotes,
// anything else as JSON text.
func positionParam(p Position) *string {
	if len(p) == 0 {
		return nil
	}
	var s string
	if err := json.Unmarshal(p, &s); err == nil {
		return &s
	}
	return new(string(p))
}

func mustMarshal(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("client: %v", err)) // strings and maps of integers always encode
	}
	return b
}
