package jsonrow

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// drawType is any type, nested at most depth levels.
func drawType(t *rapid.T, depth int) millrace.DataType {
	kinds := []millrace.Kind{
		millrace.Boolean, millrace.TinyInt, millrace.SmallInt, millrace.Int, millrace.BigInt, millrace.Float, millrace.Double,
		millrace.Decimal, millrace.Char, millrace.String, millrace.Binary, millrace.Bytes, millrace.Date, millrace.Time,
		millrace.Timestamp, millrace.TimestampLTZ,
	}
	if depth > 0 {
		kinds = append(kinds, millrace.Array, millrace.Map, millrace.Row)
	}
	typ := millrace.DataType{Kind: rapid.SampledFrom(kinds).Draw(t, "kind")}
	switch typ.Kind {
	case millrace.Decimal:
		typ.Precision = rapid.IntRange(1, 38).Draw(t, "precision")
		typ.Scale = rapid.IntRange(0, typ.Precision).Draw(t, "scale")
	case millrace.Char, millrace.Binary:
		typ.Length = rapid.IntRange(1, 9).Draw(t, "length")
	case millrace.Time, millrace.Timestamp, millrace.TimestampLTZ:
		typ.Precision = rapid.IntRange(0, 9).Draw(t, "precision")
	case millrace.Array:
		typ.Children = []millrace.Column{drawColumn(t, millrace.ElementName, depth-1)}
	case millrace.Map:
		typ.Children = []millrace.Column{drawColumn(t, millrace.KeyName, depth-1), drawColumn(t, millrace.ValueName, depth-1)}
		typ.Children[0].Nullable = false
	case millrace.Row:
		for i := range rapid.IntRange(1, 4).Draw(t, "fields") {
			typ.Children = append(typ.Children, drawColumn(t, fmt.Sprintf("f%d", i), depth-1))
		}
	default:
	}
	return typ
}

func drawColumn(t *rapid.T, name string, depth int) millrace.Column {
	return millrace.Column{Name: name, Type: drawType(t, depth), Nullable: rapid.Bool().Draw(t, "nullable")}
}

// drawn is a value as a sender may spell it and as it must come back, the latter
// as a tree of the standard library's types.
type drawn struct {
	text string
	want any
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func number(text string) json.Number { return json.Number(text) }

// drawValue is a value of the type. long says that BIGINT comes back as a string.
func drawValue(t *rapid.T, c millrace.Column, long bool) drawn {
	if c.Nullable && rapid.IntRange(0, 5).Draw(t, "null") == 0 {
		return drawn{"null", nil}
	}
	typ := c.Type
	switch typ.Kind {
	case millrace.Boolean:
		b := rapid.Bool().Draw(t, "bool")
		return drawn{strconv.FormatBool(b), b}
	case millrace.TinyInt, millrace.SmallInt, millrace.Int, millrace.BigInt:
		bits := map[millrace.Kind]uint{millrace.TinyInt: 8, millrace.SmallInt: 16, millrace.Int: 32, millrace.BigInt: 64}[typ.Kind]
		n := rapid.Int64Range(-1<<(bits-1), 1<<(bits-1)-1).Draw(t, "int")
		plain := strconv.FormatInt(n, 10)
		d := drawn{drawSpelling(t, big.NewInt(n), 0), number(plain)}
		if long && typ.Kind == millrace.BigInt {
			d.want = plain
		}
		return d
	case millrace.Float, millrace.Double:
		return drawFloat(t, typ.Kind)
	case millrace.Decimal:
		limit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(typ.Precision)), nil)
		raw := new(big.Int).SetBytes(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "unscaled"))
		raw.Mod(raw, limit)
		if rapid.Bool().Draw(t, "negative") {
			raw.Neg(raw)
		}
		return drawn{drawSpelling(t, raw, typ.Scale), new(big.Rat).SetFrac(raw, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(typ.Scale)), nil)).FloatString(typ.Scale)}
	case millrace.Char, millrace.String:
		most := 20
		if typ.Kind == millrace.Char {
			most = typ.Length
		}
		s := strings.ToValidUTF8(rapid.StringN(0, most, -1).Draw(t, "text"), "?")
		return drawn{drawString(t, s), s}
	case millrace.Binary, millrace.Bytes:
		least, most := 0, 20
		if typ.Kind == millrace.Binary {
			least, most = typ.Length, typ.Length
		}
		b := rapid.SliceOfN(rapid.Byte(), least, most).Draw(t, "bytes")
		enc := rapid.SampledFrom([]*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding}).Draw(t, "base64")
		return drawn{quote(enc.EncodeToString(b)), base64.StdEncoding.EncodeToString(b)}
	case millrace.Date, millrace.Time, millrace.Timestamp, millrace.TimestampLTZ:
		return drawTime(t, typ)
	default:
		return drawNested(t, typ, long)
	}
}

// drawSpelling writes unscaled/10^scale in one of the ways that are exact.
func drawSpelling(t *rapid.T, unscaled *big.Int, scale int) string {
	digits := new(big.Int).Abs(unscaled).String()
	sign := ""
	if unscaled.Sign() < 0 {
		sign = "-"
	}
	// Put the point anywhere and make up for it in the exponent.
	shift := rapid.IntRange(-5, 45).Draw(t, "point")
	for len(digits) <= shift {
		digits = "0" + digits
	}
	text := digits
	if shift > 0 {
		text = digits[:len(digits)-shift] + "." + digits[len(digits)-shift:]
	}
	head, frac, dotted := strings.Cut(text, ".")
	head = strings.TrimLeft(head, "0")
	if head == "" {
		head = "0"
	}
	text = head
	if dotted {
		text += "." + frac
	}
	exp := shift - scale
	if shift < 0 {
		text += strings.Repeat("0", -shift)
		if head == "0" {
			text = "0"
		}
	}
	if exp != 0 || rapid.Bool().Draw(t, "exponent") {
		text += rapid.SampledFrom([]string{"e", "E"}).Draw(t, "e")
		if exp >= 0 && rapid.Bool().Draw(t, "plus") {
			text += "+"
		}
		text += strconv.Itoa(exp)
	}
	if rapid.Bool().Draw(t, "quoted") {
		return quote(sign + text)
	}
	return sign + text
}

func drawFloat(t *rapid.T, kind millrace.Kind) drawn {
	if s := rapid.SampledFrom([]string{"", "", "", "", "NaN", "Infinity", "-Infinity"}).Draw(t, "special"); s != "" {
		return drawn{quote(s), s}
	}
	var f any
	if kind == millrace.Float {
		f = rapid.Float32().Draw(t, "float")
	} else {
		f = rapid.Float64().Draw(t, "float")
	}
	shortest, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	bits := 64
	if kind == millrace.Float {
		bits = 32
	}
	text := string(shortest)
	if rapid.Bool().Draw(t, "exactly") {
		n, _ := strconv.ParseFloat(text, bits)
		text = strconv.FormatFloat(n, 'e', 40, 64)
	}
	return drawn{text, number(string(shortest))}
}

func drawString(t *rapid.T, s string) string {
	if rapid.Bool().Draw(t, "escaped") {
		var b strings.Builder
		b.WriteByte('"')
		for _, r := range s {
			if r > 0xffff {
				r -= 0x10000
				fmt.Fprintf(&b, `\u%04x\u%04X`, 0xd800+r>>10, 0xdc00+r&0x3ff)
			} else {
				fmt.Fprintf(&b, `\u%04x`, r)
			}
		}
		return b.String() + `"`
	}
	return quote(s)
}

// drawTime uses the standard library's calendar.
func drawTime(t *rapid.T, typ millrace.DataType) drawn {
	first, last := int64(-62135596800), int64(253402300799)
	if typ.Precision > 6 && typ.Kind != millrace.Time {
		first, last = -9223372036, 9223372035
	}
	unit := int64(1)
	for range 9 - typ.Precision {
		unit *= 10
	}
	nanos := rapid.Int64Range(0, 999_999_999).Draw(t, "nanos") / unit * unit
	at := time.Unix(rapid.Int64Range(first, last).Draw(t, "seconds"), nanos).UTC()
	frac := ""
	if typ.Precision > 0 {
		frac = "." + strings.Repeat("0", typ.Precision)
	}
	dropZeros := func(s string) string {
		if frac == "" || !rapid.Bool().Draw(t, "short") {
			return s
		}
		return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
	}
	switch typ.Kind {
	case millrace.Date:
		s := at.Format("2006-01-02")
		return drawn{quote(s), s}
	case millrace.Time:
		s := at.Format("15:04:05" + frac)
		return drawn{quote(dropZeros(s)), s}
	case millrace.Timestamp:
		s := at.Format("2006-01-02T15:04:05" + frac)
		return drawn{quote(dropZeros(s)), s}
	default:
		want := at.Format("2006-01-02T15:04:05"+frac) + "Z"
		zone := rapid.IntRange(-23*60-59, 23*60+59).Draw(t, "zone")
		local := at.In(time.FixedZone("", zone*60))
		if y := local.Year(); y < 1 || y > 9999 {
			local = at
		}
		text := dropZeros(local.Format("2006-01-02T15:04:05" + frac))
		return drawn{quote(text + local.Format("-07:00")), want}
	}
}

func drawNested(t *rapid.T, typ millrace.DataType, long bool) drawn {
	gap := rapid.SampledFrom([]string{"", " ", "\n\t"}).Draw(t, "gap")
	var texts []string
	switch typ.Kind {
	case millrace.Array:
		list := []any{}
		for range rapid.IntRange(0, 4).Draw(t, "elements") {
			v := drawValue(t, typ.Children[0], long)
			texts, list = append(texts, v.text), append(list, v.want)
		}
		return drawn{"[" + gap + strings.Join(texts, gap+","+gap) + gap + "]", list}
	case millrace.Row:
		fields := map[string]any{}
		for _, c := range typ.Children {
			v := drawValue(t, c, long)
			fields[c.Name] = v.want
			if v.want != nil || rapid.Bool().Draw(t, "present") {
				texts = append(texts, quote(c.Name)+gap+":"+gap+v.text)
			}
		}
		texts = rapid.Permutation(texts).Draw(t, "order")
		return drawn{"{" + gap + strings.Join(texts, gap+","+gap) + gap + "}", fields}
	default: // a map
	}
	key, val := typ.Children[0], typ.Children[1]
	textKeys := key.Type.Kind == millrace.String || key.Type.Kind == millrace.Char
	object, entries := map[string]any{}, []any{}
	asObject := textKeys && rapid.Bool().Draw(t, "object")
	seen := map[string]bool{}
	for range rapid.IntRange(0, 12).Draw(t, "entries") {
		k, v := drawValue(t, key, long), drawValue(t, val, long)
		same := fmt.Sprint(k.want)
		if same = strings.ReplaceAll(same, "-0 ", "0 "); same == "-0" {
			same = "0"
		}
		if key.Type.Nested() || seen[same] {
			// A key that may equal another in a way that this model does not tell.
			if len(entries)+len(object) > 0 {
				continue
			}
		}
		seen[same] = true
		if textKeys {
			object[k.want.(string)] = v.want
		}
		entries = append(entries, map[string]any{"key": k.want, "value": v.want})
		if asObject {
			texts = append(texts, k.text+gap+":"+v.text)
			continue
		}
		pair := []string{`"key":` + k.text, `"value":` + v.text}
		if v.want == nil && rapid.Bool().Draw(t, "no value") {
			pair = pair[:1]
		}
		texts = append(texts, "{"+strings.Join(rapid.Permutation(pair).Draw(t, "order"), ","+gap)+"}")
	}
	open, end := "[", "]"
	if asObject {
		open, end = "{", "}"
	}
	var want any = entries
	if textKeys {
		want = object
	}
	return drawn{open + strings.Join(texts, ",") + end, want}
}

// TestRoundTrip shows that a value of any type, however spelled, comes back as
// itself in its canonical form, and that the arrays in between are sound by
// arrow-go's own check.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		long := rapid.Bool().Draw(t, "int64 as string")
		var cols []millrace.Column
		for i := range rapid.IntRange(1, 4).Draw(t, "columns") {
			cols = append(cols, drawColumn(t, fmt.Sprintf("c%d", i), 3))
		}
		d := NewDecoder(cols, Options{})
		var want []any
		for range rapid.IntRange(0, 20).Draw(t, "rows") {
			v := drawNested(t, millrace.DataType{Kind: millrace.Row, Children: cols}, long)
			if err := d.AddObject([]byte(v.text), 0); err != nil {
				t.Fatalf("%s: %v", v.text, err)
			}
			want = append(want, v.want)
		}
		rows := d.Finish()
		defer rows.Release()
		if err := array.ValidateRecordFull(rows.Record); err != nil {
			t.Fatal(err)
		}
		var got []any
		for _, text := range encodeAll(rows, EncodeOptions{Int64AsString: long}) {
			got = append(got, treeOf(t, text))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%v (-want +got):\n%s", cols, diff)
		}
	})
}

func treeOf(t *rapid.T, b []byte) any {
	if !utf8.Valid(b) {
		t.Fatalf("%q is not UTF-8", b)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return v
}

// TestNumbers shows that any number is taken by integers and decimals exactly when
// math/big says that it fits without loss.
func TestNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number")
		if rapid.Bool().Draw(t, "zeros") {
			head, tail, ok := strings.Cut(text, ".")
			if ok {
				text = head + strings.Repeat("0", 20*min(1, len(strings.Trim(head, "-0")))) + "." + tail
			}
		}
		value, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatalf("the standard library does not read %s", text)
		}
		for _, sql := range []string{"TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL(38,0)", "DECIMAL(38,19)", "DECIMAL(10,2)", "DECIMAL(3,3)"} {
			typ, err := millrace.ParseType(sql)
			if err != nil {
				t.Fatal(err)
			}
			limit := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(typ.Precision-typ.Scale)), nil))
			low, high := new(big.Rat).Neg(limit), limit
			fits := value.Cmp(low) > 0 && value.Cmp(high) < 0
			if i := slices.Index([]millrace.Kind{millrace.TinyInt, millrace.SmallInt, millrace.Int, millrace.BigInt}, typ.Kind); i >= 0 {
				edge := new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), uint(8<<i-1)))
				fits = value.Cmp(new(big.Rat).Neg(edge)) >= 0 && value.Cmp(edge) < 0
			}
			scaled := new(big.Rat).Mul(value, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(typ.Scale)), nil)))
			fits = fits && scaled.IsInt()
			d := NewDecoder([]millrace.Column{{Name: "v", Type: typ}}, Options{})
			err = d.AddObject([]byte(`{"v":`+text+`}`), 0)
			if fits != (err == nil) || err != nil && !errs.Is(err, errs.ValueOutOfRange) {
				t.Fatalf("%s as %s: fits %v, got %v", text, sql, fits, err)
			}
			if !fits {
				continue
			}
			got := strings.Trim(decoded(d)[0][len(`{"v":`):], `"}`)
			if want := value.FloatString(typ.Scale); strings.TrimPrefix(got, "-") != strings.TrimPrefix(want, "-") || got[0] == '-' && value.Sign() >= 0 {
				t.Fatalf("%s as %s came back as %s, want %s", text, sql, got, want)
			}
		}
	})
}

// FuzzObject shows that no text makes the decoder fail badly: it takes a row or
// refuses it with a code of its own and no trace; what it takes is JSON by the
// standard library, and comes back as something that it takes again and that
// reads the same.
func FuzzObject(f *testing.F) {
	cols := columnsOf(f, "a TINYINT, b BIGINT, c DOUBLE, d DECIMAL(20,5), e CHAR(5), f STRING, g BINARY(3), h BYTES, i DATE, j TIME(4), k TIMESTAMP(9), l TIMESTAMP_LTZ(2), m ARRAY<MAP<INT, FLOAT>>, n ROW<x MAP<STRING, ROW<y BOOLEAN NOT NULL>>>, o MAP<ROW<z DOUBLE>, INT>")
	f.Add([]byte(`{"a":1,"b":"-5","c":1.5e3,"d":"0.5","e":"\u00e9","f":"x","g":"AAEC","h":"AA==","i":"2026-11-29","j":"10:00:00.1","k":"2026-11-29T10:00:00","l":5}`))
	f.Add([]byte(`{"m":[[{"key":1,"value":"NaN"}],null],"n":{"x":{"k":{"y":true}}},"o":[{"key":{"z":-0},"value":1}],"_change_type":"-D"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		d := NewDecoder(cols, Options{AllowChangeType: true})
		if err := d.AddObject([]byte(`{"f":"before"}`), 0); err != nil {
			t.Fatal(err)
		}
		err := d.AddObject(in, 1)
		if err != nil && errs.CodeOf(err) == errs.Internal {
			t.Fatal(err)
		}
		if err == nil && !json.Valid(in) {
			t.Fatalf("%q was taken", in)
		}
		if err2 := d.AddObject([]byte(`{"f":"after"}`), 2); err2 != nil {
			t.Fatal(err2)
		}
		rows := d.Finish()
		defer rows.Release()
		if err := array.ValidateRecordFull(rows.Record); err != nil {
			t.Fatal(err)
		}
		out := encodeAll(rows, EncodeOptions{})
		want := 3
		if err != nil {
			want = 2
		}
		if len(out) != want || !bytes.Contains(out[0], []byte("before")) || !bytes.Contains(out[want-1], []byte("after")) {
			t.Fatalf("%q: %q", in, out)
		}
		if err != nil {
			return
		}
		if !json.Valid(out[1]) {
			t.Fatalf("%q came back as %q", in, out[1])
		}
		if err := d.AddObject(out[1], 0); err != nil {
			t.Fatalf("%q came back as %q: %v", in, out[1], err)
		}
		again := d.Finish()
		defer again.Release()
		if diff := cmp.Diff(string(out[1]), string(encodeAll(again, EncodeOptions{})[0])); diff != "" {
			t.Fatalf("%q: %s", in, diff)
		}
	})
}
