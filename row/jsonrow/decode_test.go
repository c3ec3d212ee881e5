package jsonrow

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

// columnsOf reads "id BIGINT NOT NULL, name STRING" as columns.
func columnsOf(t testing.TB, list string) []millrace.Column {
	t.Helper()
	cols := typeOf(t, "ROW<"+list+">").Children
	for i := range cols {
		cols[i].ID = millrace.ColumnID(i + 1)
	}
	return cols
}

// decoded renders the rows of a decoder, with their change types when given.
func decoded(d *Decoder) []string {
	rows := d.Finish()
	defer rows.Release()
	return rendered(rows)
}

func rendered(rows row.Rows) []string {
	var out []string
	for i, text := range encodeAll(rows, EncodeOptions{}) {
		if rows.Changes != nil {
			out = append(out, rows.Changes[i].String()+" "+string(text))
		} else {
			out = append(out, string(text))
		}
	}
	return out
}

// wantFault checks an error's code, row, field path, and a part of its message.
func wantFault(t *testing.T, err error, code errs.Code, index int64, field, part string) {
	t.Helper()
	e, ok := errors.AsType[*errs.Error](err)
	if !ok || e.Code != code || len(e.Fields) != 1 {
		t.Fatalf("got %v, want one %s", err, code)
	}
	f := e.Fields[0]
	if f.Index == nil || *f.Index != index || f.Field != field || f.Code != code || !strings.Contains(f.Message, part) {
		t.Fatalf("got row %v field %q code %s: %s\nwant row %d field %q code %s with %q", *f.Index, f.Field, f.Code, f.Message, index, field, code, part)
	}
}

// TestFaults shows, for each way in which an object can be wrong, the code, the
// path to the place, and that the message names the value and the type wanted;
// and that no bad object changes what the good ones around it become.
func TestFaults(t *testing.T) {
	cols := columnsOf(t, "id BIGINT NOT NULL, name STRING, tags ARRAY<ROW<name CHAR(2) NOT NULL, n INT>>, m MAP<STRING, ARRAY<INT>>, b BINARY(2), k MAP<INT, INT>, ok BOOLEAN")
	good := `{"id":1,"name":"n\u00e9","tags":[{"name":"ab"},null],"m":{"x":[1]},"b":"AAE=","k":[{"key":1,"value":2}],"ok":true}`
	clean := `{"id":1,"name":"né","tags":[{"name":"ab","n":null},null],"m":{"x":[1]},"b":"AAE=","k":[{"key":1,"value":2}],"ok":true}`
	tests := []struct {
		in    string
		code  errs.Code
		field string
		part  string
	}{
		{`{"id":"x"}`, errs.InvalidValue, "id", `"x": not a value of BIGINT`},
		{`{"id":1.5}`, errs.ValueOutOfRange, "id", `1.5: more digits than BIGINT holds`},
		{`{"id":[1]}`, errs.TypeMismatch, "id", `[1]}: want BIGINT, a whole number`},
		{`{"id":null}`, errs.NullNotAllowed, "id", "NOT NULL"},
		{`{"name":"x"}`, errs.MissingKey, "id", "key column is missing"},
		{`{"id":1,"nope":1}`, errs.UnknownField, "nope", "no such field"},
		{`{"id":1,"` + strings.Repeat("x", 5000) + `":1}`, errs.UnknownField, strings.Repeat("x", 64) + "…", "no such field"},
		{`{"id":1,"id":1}`, errs.DuplicateField, "id", "twice"},
		{`{"id":1,"i\u0064":1}`, errs.DuplicateField, "id", "twice"},
		{`{"id":1,"_change_type":"+I"}`, errs.UnknownField, "_change_type", "no such field"},
		{`{"id":1,"tags":[{"name":"ab"},{"name":"abc"}]}`, errs.ValueOutOfRange, "tags[1].name", `"abc": CHAR(2) holds at most 2 characters`},
		{`{"id":1,"tags":[{"n":1}]}`, errs.MissingColumn, "tags[0].name", "missing"},
		{`{"id":1,"tags":[{"name":null}]}`, errs.NullNotAllowed, "tags[0].name", "NOT NULL"},
		{`{"id":1,"tags":[{"name":"a","x":1}]}`, errs.UnknownField, "tags[0].x", "no such field"},
		{`{"id":1,"tags":[{"name":"a","name":"b"}]}`, errs.DuplicateField, "tags[0].name", "twice"},
		{`{"id":1,"tags":{"name":"a"}}`, errs.TypeMismatch, "tags", "want ARRAY<"},
		{`{"id":1,"m":{"x":[1,2,"y"]}}`, errs.InvalidValue, "m.x[2]", `"y": not a value of INT`},
		{`{"id":1,"m":{"x":null,"x":null}}`, errs.DuplicateField, "m", "same key"},
		{`{"id":1,"m":[{"key":"x","value":[true]}]}`, errs.TypeMismatch, "m[0].value[0]", `true: want INT`},
		{`{"id":1,"k":[{"key":1},{"key":"1"}]}`, errs.DuplicateField, "k", "same key"},
		{`{"id":1,"k":[{"key":1},5]}`, errs.TypeMismatch, "k[1]", `want an object with "key" and "value"`},
		{`{"id":1,"b":"AAEC"}`, errs.ValueOutOfRange, "b", "BINARY(2) holds exactly 2 bytes"},
		{`{"id":1,"ok":"true"}`, errs.TypeMismatch, "ok", "true or false"},
		{`{"id":1,"name":"` + strings.Repeat("é", 100) + `","ok":0}`, errs.TypeMismatch, "ok", "true or false"},
		{`{"id":1,"name":"a` + "\xff" + `"}`, errs.InvalidValue, "name", "not valid UTF-8"},
		{`{"id":1,"name":"\udc00"}`, errs.InvalidValue, "name", "surrogate"},
		{`{"id":1,"na` + "\xff" + `me":"a"}`, errs.InvalidValue, "", "not valid UTF-8"},
		{`{"id":1,"name":"a` + "\n" + `"}`, errs.InvalidRequest, "name", "control character"},
		{`{"id":1,"name":"\x"}`, errs.InvalidRequest, "name", "escape"},
		{`{"id":1,"name":"\u12g4"}`, errs.InvalidRequest, "name", "escape"},
		{`{"id":1,"name":"a`, errs.InvalidRequest, "name", "no end"},
		{`{"id":01}`, errs.InvalidRequest, "id", "number is not well formed"},
		{`{"id":1.}`, errs.InvalidRequest, "id", "number is not well formed"},
		{`{"id":-}`, errs.InvalidRequest, "id", "number is not well formed"},
		{`{"id":1e}`, errs.InvalidRequest, "id", "number is not well formed"},
		{`{"id":+1}`, errs.InvalidRequest, "id", "no JSON value"},
		{`{"id":nul}`, errs.InvalidRequest, "id", "no JSON value"},
		{`{"id":nullx}`, errs.InvalidRequest, "id", "no JSON value"},
		{`{"id":NaN}`, errs.InvalidRequest, "id", "no JSON value"},
		{`{"id":1,}`, errs.InvalidRequest, "", "comma stands before"},
		{`{"id":1 "name":"x"}`, errs.InvalidRequest, "", "comma is missing"},
		{`{"id" 1}`, errs.InvalidRequest, "", "colon"},
		{`{id:1}`, errs.InvalidRequest, "", "string is missing"},
		{`{"id":1,"m":{x:[]}}`, errs.InvalidRequest, "m", "string is missing"},
		{`{"id":1`, errs.InvalidRequest, "", "text ends"},
		{`{"id":`, errs.InvalidRequest, "id", "text ends"},
		{`{"id":1}}`, errs.InvalidRequest, "", "more text"},
		{`{"id":1} {}`, errs.InvalidRequest, "", "more text"},
		{``, errs.InvalidRequest, "", "empty"},
		{`  `, errs.InvalidRequest, "", "empty"},
		{`hello`, errs.InvalidRequest, "", "want an object"},
		{`[1]`, errs.TypeMismatch, "", "[1]: want an object"},
		{`null`, errs.TypeMismatch, "", "null: want an object"},
		{` 12`, errs.TypeMismatch, "", "12: want an object"},
	}
	d := NewDecoder(cols, Options{Key: []string{"id"}})
	var want []string
	for i, tt := range tests {
		wantFault(t, d.AddObject([]byte(tt.in), int64(i)), tt.code, int64(i), tt.field, tt.part)
		if err := d.AddObject([]byte(good), 0); err != nil {
			t.Fatal(err)
		}
		want = append(want, clean)
	}
	if diff := cmp.Diff(want, decoded(d)); diff != "" {
		t.Errorf("good rows changed (-want +got):\n%s", diff)
	}
}

// TestWholeAndPartial shows what absence and NULL mean in whole rows, in partial
// rows, in keys and in rows that delete.
func TestWholeAndPartial(t *testing.T) {
	cols := columnsOf(t, "id INT NOT NULL, name STRING NOT NULL, note STRING")
	auto := append(cols[:3:3], millrace.Column{ID: 4, Name: "seq", Type: millrace.DataType{Kind: millrace.BigInt}, AutoIncrement: true})
	key := []string{"id"}
	tests := []struct {
		name string
		cols []millrace.Column
		opts Options
		in   string
		want string // the row, or a code and field
	}{
		{"whole", cols, Options{Key: key}, `{"id":1,"name":"a"}`, `{"id":1,"name":"a","note":null}`},
		{"whole, no key", cols, Options{Key: key}, `{"name":"a"}`, `missing_key id`},
		{"whole, not null absent", cols, Options{Key: key}, `{"id":1,"note":"x"}`, `missing_column name`},
		{"whole, not null null", cols, Options{Key: key}, `{"id":1,"name":null}`, `null_not_allowed name`},
		{"auto-increment absent", auto, Options{Key: key}, `{"id":1,"name":"a"}`, `{"id":1,"name":"a","note":null,"seq":null}`},
		{"auto-increment null", auto, Options{Key: key}, `{"id":1,"name":"a","seq":null}`, `{"id":1,"name":"a","note":null,"seq":null}`},
		{"auto-increment given", auto, Options{Key: key}, `{"id":1,"name":"a","seq":7}`, `invalid_value seq`},
		{"auto-increment given, update", auto, Options{Key: key, AllowChangeType: true}, `{"id":1,"name":"a","seq":7,"_change_type":"+U"}`, `invalid_value seq`},
		{"auto-increment given, delete", auto, Options{Key: key, AllowChangeType: true}, `{"id":1,"seq":7,"_change_type":"-D"}`, `-D {"id":1,"name":null,"note":null,"seq":7}`},
		{"auto-increment given, before image", auto, Options{Key: key, AllowChangeType: true}, `{"id":1,"seq":7,"_change_type":"-U"}`, `-U {"id":1,"name":null,"note":null,"seq":7}`},
		{"auto-increment given, key only", auto, Options{Key: key, KeyOnly: true}, `{"id":1,"seq":7}`, `{"id":1,"name":null,"note":null,"seq":7}`},
		{"partial", nil, Options{Key: key, Required: []string{"id", "note"}}, `{"note":null,"id":1}`, ``},
		{"key only", cols, Options{Key: key, KeyOnly: true}, `{"id":1}`, `{"id":1,"name":null,"note":null}`},
		{"key only, null", cols, Options{Key: key, KeyOnly: true}, `{"name":null,"id":1}`, `{"id":1,"name":null,"note":null}`},
		{"key only, no key", cols, Options{Key: key, KeyOnly: true}, `{"name":"x"}`, `missing_key id`},
		{"key only, null key", cols, Options{Key: key, KeyOnly: true}, `{"id":null}`, `null_not_allowed id`},
		{"insert", cols, Options{Key: key, AllowChangeType: true}, `{"id":1,"name":"a","_change_type":"+I"}`, `+I {"id":1,"name":"a","note":null}`},
		{"update", cols, Options{Key: key, AllowChangeType: true}, `{"_change_type":"+U","id":1,"name":"a"}`, `+U {"id":1,"name":"a","note":null}`},
		{"delete", cols, Options{Key: key, AllowChangeType: true}, `{"id":1,"_change_type":"-D"}`, `-D {"id":1,"name":null,"note":null}`},
		{"delete, null", cols, Options{Key: key, AllowChangeType: true}, `{"id":1,"name":null,"_change_type":"-D"}`, `-D {"id":1,"name":null,"note":null}`},
		{"before image", cols, Options{Key: key, AllowChangeType: true}, `{"id":1,"_change_type":"-U"}`, `-U {"id":1,"name":null,"note":null}`},
		{"delete, no key", cols, Options{Key: key, AllowChangeType: true}, `{"name":"a","_change_type":"-D"}`, `missing_key id`},
		{"update, absent", cols, Options{Key: key, AllowChangeType: true}, `{"id":1,"_change_type":"+U"}`, `missing_column name`},
		{"update, null", cols, Options{Key: key, AllowChangeType: true}, `{"id":1,"name":null,"_change_type":"+U"}`, `null_not_allowed name`},
		{"no change type", cols, Options{Key: key, AllowChangeType: true}, `{"id":1}`, `missing_column name`},
		{"bad change type", cols, Options{Key: key, AllowChangeType: true}, `{"id":1,"name":"a","_change_type":"+X"}`, `invalid_value _change_type`},
		{"change type is null", cols, Options{Key: key, AllowChangeType: true}, `{"id":1,"name":"a","_change_type":null}`, `type_mismatch _change_type`},
		{"two change types", cols, Options{Key: key, AllowChangeType: true}, `{"id":1,"_change_type":"-D","_change_type":"-D"}`, `duplicate_field _change_type`},
	}
	tests[11].cols = []millrace.Column{cols[0], cols[2]}
	tests[11].want = `{"id":1,"note":null}`
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := NewDecoder(tt.cols, tt.opts)
			var got string
			if err := d.AddObject([]byte(tt.in), 0); err != nil {
				e, _ := errors.AsType[*errs.Error](err)
				got = fmt.Sprintf("%s %s", e.Code, e.Fields[0].Field)
				if len(decoded(d)) != 0 {
					t.Error("the bad row was kept")
				}
			} else {
				got = strings.Join(decoded(d), "\n")
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
	d := NewDecoder([]millrace.Column{cols[0], cols[2]}, Options{Key: key, Required: []string{"id", "note"}})
	wantFault(t, d.AddObject([]byte(`{"id":1}`), 3), errs.MissingColumn, 3, "note", "names")
}

// TestChangesFromTheMiddle shows that rows before the first with a change type
// count as inserts.
func TestChangesFromTheMiddle(t *testing.T) {
	d := NewDecoder(columnsOf(t, "id INT NOT NULL"), Options{Key: []string{"id"}, AllowChangeType: true})
	for _, s := range []string{`{"id":1}`, `{"id":2}`, `{"id":3,"_change_type":"-D"}`, `{"id":4}`} {
		if err := d.AddObject([]byte(s), 0); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{`+I {"id":1}`, `+I {"id":2}`, `-D {"id":3}`, `+I {"id":4}`}
	if diff := cmp.Diff(want, decoded(d)); diff != "" {
		t.Error(diff)
	}
	if err := d.AddObject([]byte(`{"id":5}`), 0); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{`{"id":5}`}, decoded(d)); diff != "" {
		t.Errorf("the next chunk: %s", diff)
	}
}

// TestKeyed shows that a key from a path joins an object that lacks it, agrees
// with one that has it in any spelling, and refuses another one.
func TestKeyed(t *testing.T) {
	cols := columnsOf(t, "id BIGINT NOT NULL, day DATE NOT NULL, ok BOOLEAN NOT NULL, name STRING")
	key := []string{"id", "day", "ok"}
	texts := []string{"7", "2026-11-29", "true"}
	d := NewDecoder(cols, Options{Key: key})
	for _, body := range []string{`{"name":"x"}`, `{"name":"x","id":"7","ok":true}`, `{"day":"2026-11-29","id":7.0,"name":"x"}`} {
		if err := d.AddKeyed(key, texts, []byte(body), 0); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
	add := func(body string) error { return d.AddKeyed(key, texts, []byte(body), 0) }
	wantFault(t, add(`{"id":8}`), errs.KeyMismatch, 0, "id", "not the key in the path")
	wantFault(t, add(`{"ok":false}`), errs.KeyMismatch, 0, "ok", "not the key in the path")
	wantFault(t, add(`{"id":null}`), errs.NullNotAllowed, 0, "id", "NOT NULL")
	wantFault(t, add(`{"id":7,"id":7}`), errs.DuplicateField, 0, "id", "twice")
	wantFault(t, add(`{"name":"x","name":"y"}`), errs.DuplicateField, 0, "name", "twice")
	wantFault(t, add(``), errs.InvalidRequest, 0, "", "empty")
	wantFault(t, d.AddTexts([]string{"id"}, []string{"7"}, 0), errs.MissingKey, 0, "day", "missing")
	wantFault(t, d.AddTexts([]string{"id", "id"}, []string{"7", "7"}, 0), errs.DuplicateField, 0, "id", "twice")
	wantFault(t, d.AddTexts([]string{"name2"}, []string{"7"}, 0), errs.UnknownColumn, 0, "name2", "no such")
	wantFault(t, d.AddTexts([]string{"id"}, []string{"seven"}, 0), errs.InvalidValue, 0, "id", "seven: not a value of BIGINT")
	wantFault(t, d.AddTexts([]string{"ok"}, []string{"TRUE"}, 0), errs.InvalidValue, 0, "ok", "TRUE: not a value of BOOLEAN")
	row := `{"id":7,"day":"2026-11-29","ok":true,"name":"x"}`
	if diff := cmp.Diff([]string{row, row, row}, decoded(d)); diff != "" {
		t.Error(diff)
	}
}

// TestFull shows that what a decoder holds is bounded: it says when it is full,
// refuses more, and refuses a row whose NULLs alone would fill memory.
func TestFull(t *testing.T) {
	d := NewDecoder(columnsOf(t, "b BINARY(1048576)"), Options{})
	n := 0
	for ; !d.Full(); n++ {
		if n > 100 {
			t.Fatal("never full")
		}
		if err := d.AddObject([]byte(`{}`), 0); err != nil {
			t.Fatal(err)
		}
	}
	if n < 60 || n > 68 {
		t.Errorf("full after %d MiB", n)
	}
	wantFault(t, d.AddObject([]byte(`{}`), 5), errs.TooLarge, 5, "", "MiB")
	rows := d.Finish()
	defer rows.Release()
	if rows.Len() != n || d.Full() {
		t.Errorf("%d rows of %d", rows.Len(), n)
	}

	d = NewDecoder(columnsOf(t, "a ARRAY<ROW<b BINARY(4096), c BINARY(4096)>>"), Options{})
	wantFault(t, d.AddObject([]byte(`{"a":[{}`+strings.Repeat(",{}", 100_000)+`]}`), 0), errs.TooLarge, 0, "a[2048]", "too much room")
	wantFault(t, d.AddObject([]byte(`{"a":[null`+strings.Repeat(",null", 100_000)+`]}`), 0), errs.TooLarge, 0, "a[2047]", "too much room")
	wantFault(t, d.AddObject([]byte(`{"a":"`+strings.Repeat("x", MaxRowBytes)+`"}`), 9), errs.TooLarge, 9, "", "1048576")
}

// TestEqualKeys shows that MAP keys count as equal when their values are, however
// spelled, for few and many keys and for keys that are nested.
func TestEqualKeys(t *testing.T) {
	many := func(last string) string {
		var b strings.Builder
		for i := range 50 {
			fmt.Fprintf(&b, `{"key":%d},`, i)
		}
		return `[` + b.String() + `{"key":` + last + `}]`
	}
	tests := []struct {
		sql, in string
		twice   bool
	}{
		{"MAP<DOUBLE, INT>", `[{"key":0},{"key":-0.0}]`, true},
		{"MAP<FLOAT, INT>", `[{"key":-0},{"key":0}]`, true},
		{"MAP<DOUBLE, INT>", `[{"key":"NaN"},{"key":"NaN"}]`, true},
		{"MAP<DOUBLE, INT>", `[{"key":-0},{"key":-1},{"key":-2}]`, false},
		{"MAP<INT, INT>", many("49"), true},
		{"MAP<INT, INT>", many("50"), false},
		{"MAP<INT, INT>", many("-1"), false},
		{"MAP<BOOLEAN, INT>", `[{"key":true},{"key":false}]`, false},
		{"MAP<BOOLEAN, INT>", `[{"key":true},{"key":false},{"key":true}]`, true},
		{"MAP<STRING, INT>", `{"a":1,"\u0061":2}`, true},
		{"MAP<STRING, INT>", `{"ab":1,"a":2,"b":3}`, false},
		{"MAP<ARRAY<DOUBLE>, INT>", `[{"key":[0,1]},{"key":[-0,1.0]}]`, true},
		{"MAP<ARRAY<DOUBLE>, INT>", `[{"key":[0,1]},{"key":[0]},{"key":[1,0]}]`, false},
		{"MAP<ROW<a STRING, b INT>, INT>", `[{"key":{"a":"x"}},{"key":{"b":null,"a":"x"}}]`, true},
		{"ARRAY<MAP<INT, INT>>", `[[{"key":1}],[{"key":1}]]`, false},
	}
	for _, tt := range tests {
		d := NewDecoder(column1(t, tt.sql), Options{})
		err := d.AddObject(object1([]byte(tt.in)), 0)
		if tt.twice != errs.Is(err, errs.DuplicateField) || !tt.twice && err != nil {
			t.Errorf("%s %s: %v", tt.sql, tt.in, err)
		}
	}
}

// Shows that a decoder knows what its rows take, but for the last of them, also when they are
// many times their text, and that they begin anew with the next chunk.
func TestDecoderBytes(t *testing.T) {
	cols := []millrace.Column{{Name: "s", ID: 1, Nullable: true, Type: millrace.DataType{Kind: millrace.String}}}
	for i := range 200 {
		cols = append(cols, millrace.Column{Name: fmt.Sprint("n", i), ID: millrace.ColumnID(i + 2), Nullable: true, Type: millrace.DataType{Kind: millrace.BigInt}})
	}
	d := NewDecoder(cols, Options{})
	for range 2 {
		if n := d.Bytes(); n != 0 {
			t.Fatalf("%d bytes of no rows", n)
		}
		for i := range 1000 {
			if err := d.AddObject([]byte(`{"s":"text"}`), int64(i)); err != nil {
				t.Fatal(err)
			}
			if n, all := d.Bytes(), d.row.size(); n > all || all-n >= measureEvery {
				t.Fatalf("%d bytes of %d", n, all)
			}
		}
		if n := d.Bytes(); n < 1000*200*8-measureEvery {
			t.Fatalf("%d bytes of 1000 rows", n)
		}
		d.Finish().Release()
	}
}
