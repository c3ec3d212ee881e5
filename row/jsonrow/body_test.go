package jsonrow

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/errs"
)

// TestSplitBody shows how bodies are cut, and with which codes they are refused.
func TestSplitBody(t *testing.T) {
	tests := []struct {
		in    string
		items []string
		rest  map[string]string
		code  errs.Code
	}{
		{in: `{"rows":[]}`, rest: map[string]string{}},
		{in: `{}`, rest: map[string]string{}},
		{
			in:    ` { "rows" : [ {"a":1} , {"b":"]}\"[{"},3,"x" ] , "mode" : "upsert" , "columns" : ["a"] } `,
			items: []string{`{"a":1}`, `{"b":"]}\"[{"}`, `3`, `"x"`}, rest: map[string]string{"mode": `"upsert"`, "columns": `["a"]`},
		},
		{in: `{"r\u006fws":[[1,[2]]]}`, items: []string{`[1,[2]]`}, rest: map[string]string{}},
		{in: `{"columns":null,"rows":[1]}`, items: []string{"1"}, rest: map[string]string{"columns": "null"}},
		{in: ``, code: errs.InvalidRequest},
		{in: `[]`, code: errs.InvalidRequest},
		{in: `{"rows":[1]`, code: errs.InvalidRequest},
		{in: `{"rows":[1}`, code: errs.InvalidRequest},
		{in: `{"rows":[1`, code: errs.InvalidRequest},
		{in: `{"rows":[`, code: errs.InvalidRequest},
		{in: `{"rows":`, code: errs.InvalidRequest},
		{in: `{"rows"`, code: errs.InvalidRequest},
		{in: `{"rows`, code: errs.InvalidRequest},
		{in: `{"rows":[1,]}`, code: errs.InvalidRequest},
		{in: `{"rows":[,1]}`, code: errs.InvalidRequest},
		{in: `{"rows":[1 2]}`, code: errs.InvalidRequest},
		{in: `{"rows":[1]}x`, code: errs.InvalidRequest},
		{in: `{"rows":[1],}`, code: errs.InvalidRequest},
		{in: `{"rows":[{"a":[}]}]}`, code: errs.InvalidRequest},
		{in: `{"rows":["a` + "\n" + `"]}`, code: errs.InvalidRequest},
		{in: `{"mode":nope,"rows":[]}`, code: errs.InvalidRequest},
		{in: `{"rows":5}`, code: errs.TypeMismatch},
		{in: `{"rows":{"a":1}}`, code: errs.TypeMismatch},
		{in: `{"rows":[],"rows":[]}`, code: errs.DuplicateField},
		{in: `{"mode":1,"rows":[],"m\u006fde":2}`, code: errs.DuplicateField},
		{in: `{"rows":[1,2,3,4,5]}`, code: errs.TooLarge},
	}
	for _, tt := range tests {
		b, err := SplitBody([]byte(tt.in), "rows", 4)
		if tt.code != "" {
			if !errs.Is(err, tt.code) {
				t.Errorf("%s: got %v, want %s", tt.in, err, tt.code)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
			continue
		}
		var items []string
		for _, it := range b.Items {
			items = append(items, string(it))
		}
		rest := map[string]string{}
		for k, v := range b.Members {
			rest[k] = string(v)
		}
		if diff := cmp.Diff(tt.items, items) + cmp.Diff(tt.rest, rest); diff != "" {
			t.Errorf("%s: %s", tt.in, diff)
		}
		if b.Listed != strings.Contains(tt.in, "ws") {
			t.Errorf("%s: Listed = %v", tt.in, b.Listed)
		}
	}
}

// TestFieldNames shows that a patch's fields are listed, in order.
func TestFieldNames(t *testing.T) {
	names, err := FieldNames([]byte(`{"a":{"x":[1]}, "b\n" : null,"a":3}`))
	if diff := cmp.Diff([]string{"a", "b\n", "a"}, names); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if _, err := FieldNames([]byte(`[1]`)); !errs.Is(err, errs.InvalidRequest) {
		t.Error(err)
	}
}

// TestLines shows that lines come whole whatever the sizes of reads, that blank
// ones do not count, and that the last may lack its newline.
func TestLines(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	full := strings.Repeat("y", MaxRowBytes)
	in := "{\"a\":1}\n\n  \r\n{\"b\":2}\r\n" + long + "\n" + full + "\n{\"c\":3}"
	for name, r := range map[string]io.Reader{"whole": strings.NewReader(in), "halves": iotest.HalfReader(strings.NewReader(in)), "data with EOF": iotest.DataErrReader(strings.NewReader(in))} {
		l := NewLines(r)
		for i, want := range []string{`{"a":1}`, `{"b":2}`, long, full, `{"c":3}`} {
			line, index, err := l.Next()
			if err != nil || string(line) != want || index != int64(i) {
				t.Fatalf("%s: line %d: %d bytes, number %d, %v", name, i, len(line), index, err)
			}
		}
		for range 2 {
			if _, _, err := l.Next(); !errors.Is(err, io.EOF) {
				t.Errorf("%s: at the end: %v", name, err)
			}
		}
	}

	l := NewLines(io.MultiReader(strings.NewReader("{}\n{\"a\""), iotest.ErrReader(io.ErrUnexpectedEOF)))
	if _, _, err := l.Next(); err != nil {
		t.Fatal(err)
	}
	if line, _, err := l.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a line of a broken body came out: %q, %v", line, err)
	}
}

// endless is a line without an end.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	e.read += len(p)
	return len(p), nil
}

// TestHostile shows that what is meant to exhaust memory or stack is refused at
// once: 100,000 levels, a million digits, a line without an end.
func TestHostile(t *testing.T) {
	deep := func(open, end string, n int) string { return strings.Repeat(open, n) + strings.Repeat(end, n) }
	cols := columnsOf(t, "n BIGINT, d DECIMAL(38,10), f DOUBLE, s STRING, a ARRAY<ARRAY<INT>>, m MAP<STRING, INT>, r ROW<x INT>, b BYTES")
	d := NewDecoder(cols, Options{})
	const n = 100_000
	digits := strings.Repeat("9", 1_000_000)
	tests := []struct {
		in   string
		code errs.Code
	}{
		{`{"n":` + deep("[", "]", n) + `}`, errs.TypeMismatch},
		{`{"a":` + deep("[", "]", n) + `}`, errs.TypeMismatch},
		{`{"a":` + strings.Repeat("[", n) + `}`, errs.TypeMismatch},
		{`{"m":` + deep(`{"a":`, "}", n) + `}`, errs.TypeMismatch},
		{`{"r":` + deep(`{"x":`, "}", n) + `}`, errs.TypeMismatch},
		{`{"x":` + deep("[", "]", n) + `}`, errs.UnknownField},
		{deep("[", "]", n), errs.TypeMismatch},
		{`{"n":` + digits + `}`, errs.InvalidValue},
		{`{"n":"` + digits + `"}`, errs.InvalidValue},
		{`{"d":0.` + digits + `}`, errs.InvalidValue},
		{`{"f":1e` + digits + `}`, errs.InvalidValue},
		{`{"n":` + digits[:4000] + `}`, errs.ValueOutOfRange},
		{`{"n":1e` + digits[:4000] + `}`, errs.ValueOutOfRange},
		{`{"d":1e-` + digits[:4000] + `}`, errs.ValueOutOfRange},
	}
	start := time.Now()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i, tt := range tests {
		if err := d.AddObject([]byte(tt.in), int64(i)); !errs.Is(err, tt.code) {
			t.Errorf("%.20s…: got %v, want %s", tt.in, err, tt.code)
		}
		if _, err := SplitBody([]byte(`{"rows":[`+tt.in+`]}`), "rows", 10); strings.Count(tt.in, "[")+strings.Count(tt.in, "{") > 100 && !errs.Is(err, errs.InvalidRequest) {
			t.Errorf("split of %.20s…: %v", tt.in, err)
		}
	}
	in := &endless{}
	if _, _, err := NewLines(in).Next(); !errs.Is(err, errs.TooLarge) || in.read > 2*MaxRowBytes {
		t.Errorf("%d bytes of an endless line were read: %v", in.read, err)
	}
	runtime.ReadMemStats(&after)
	if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 100 {
		t.Errorf("%d MiB were allocated", mb)
	}
	// Far more than it takes on a busy machine; what is quadratic takes longer.
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("took %v", took)
	}
	if d.Len() != 0 {
		t.Error("a bad row was kept")
	}
}

// TestDepth shows that everything a type may nest is within the depth that a body
// may have: sixteen maps whose keys are no text are 33 levels of JSON.
func TestDepth(t *testing.T) {
	typ, value := "INT", "1"
	for range 16 {
		typ, value = "MAP<INT, "+typ+">", `[{"key":1,"value":`+value+`}]`
	}
	body, err := SplitBody([]byte(`{"rows":[`+string(object1([]byte(value)))+`]}`), "rows", 1)
	if err != nil {
		t.Fatal(err)
	}
	d := NewDecoder(column1(t, typ), Options{})
	if err := d.AddObject(body.Items[0], 0); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{string(object1([]byte(value)))}, decoded(d)); diff != "" {
		t.Error(diff)
	}
}

// FuzzSplitBody shows that a body is cut exactly when the standard library finds
// the same members in it, if its items are JSON at all.
func FuzzSplitBody(f *testing.F) {
	f.Add([]byte(`{"rows":[{"a":1},{"b":[{}]}],"mode":"upsert"}`))
	f.Add([]byte(`{"mode":"\ud83d\ude00","rows":[1e5,null,"]"]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		b, err := SplitBody(in, "rows", 100)
		var std map[string]json.RawMessage
		var items []json.RawMessage
		stdErr := json.Unmarshal(in, &std)
		if stdErr == nil && std["rows"] != nil {
			stdErr = json.Unmarshal(std["rows"], &items)
		}
		for _, it := range b.Items {
			if err == nil && !json.Valid(it) {
				return // left to the decoder
			}
		}
		if err != nil {
			return // stricter than the standard library: depth, names that stand twice, UTF-8
		}
		if stdErr != nil {
			t.Fatalf("%q was cut: %v", in, stdErr)
		}
		if len(items) != len(b.Items) {
			t.Fatalf("%q: %d items, want %d", in, len(b.Items), len(items))
		}
		for i := range items {
			if !bytes.Equal(bytes.TrimSpace(items[i]), b.Items[i]) {
				t.Fatalf("%q: item %d is %q, want %q", in, i, b.Items[i], items[i])
			}
		}
		for k, v := range b.Members {
			if !bytes.Equal(std[k], v) {
				t.Fatalf("%q: %q is %q, want %q", in, k, v, std[k])
			}
		}
	})
}
