package filter

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

var scriptNow = time.Date(2026, 11, 29, 10, 0, 0, 123_456_789, time.UTC)

// The scripts of testdata/scripts show the language: how texts are read, what errors
// say, and which rows filters keep. Commands:
//
//	parse                 the expression as the parser sees it
//	table                 columns "name TYPE; …", then rows "a | b", NULL for NULL
//	select [params=json]  the rows of the table the filter keeps, one filter a line
//	check [params=json]   "ok" and the columns named, or the error, one filter a line
//	pinned col=name       the pinned values, one filter a line
//
// Where several filters stand in one command, each has its line of the answer.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		var cols []millrace.Column
		var rows [][]cell
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var params []json.RawMessage
			for _, a := range d.CmdArgs {
				if a.Key == "params" {
					if err := json.Unmarshal([]byte(strings.Join(a.Vals, ",")), &params); err != nil {
						d.Fatalf(t, "%v", err)
					}
				}
			}
			if d.Cmd == "table" {
				cols, rows = scriptTable(d.Input)
				return fmt.Sprintf("%d columns, %d rows\n", len(cols), len(rows))
			}
			var out strings.Builder
			for line := range strings.SplitSeq(d.Input, "\n") {
				out.WriteString(scriptLine(t, d, line, params, cols, rows) + "\n")
			}
			return out.String()
		})
	})
}

func scriptLine(t *testing.T, d *datadriven.TestData, line string, params []json.RawMessage, cols []millrace.Column, rows [][]cell) string {
	if d.Cmd == "parse" {
		e, _, err := parse(line)
		if err != nil {
			return fmt.Sprintf("%s: %v", errs.CodeOf(err), err)
		}
		return format(e)
	}
	f, err := Compile(line, params, cols, scriptNow)
	if err != nil {
		return fmt.Sprintf("%s: %v", errs.CodeOf(err), err)
	}
	switch d.Cmd {
	case "check":
		return strings.TrimSpace("ok " + strings.Join(f.ColumnNames(), " "))
	case "select":
		got, err := f.Select(record(t, cols, rows, 3))
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		return strings.Trim(fmt.Sprint(got), "[]")
	case "pinned":
		var name string
		d.ScanArgs(t, "col", &name)
		vals, ok := f.Pinned(name)
		if !ok {
			return "not pinned"
		}
		out := []string{"pinned"}
		for _, v := range vals {
			switch {
			case familyOf(v.col.Type.Kind) == textFamily || familyOf(v.col.Type.Kind) == bytesFamily:
				out = append(out, strconv.Quote(v.str))
			case v.col.Type.Kind == millrace.Decimal:
				out = append(out, v.dec.ToString(int32(v.col.Type.Scale)))
			default:
				out = append(out, strconv.FormatInt(v.key, 10))
			}
		}
		return strings.Join(out, " ")
	}
	d.Fatalf(t, "unknown command %s", d.Cmd)
	return ""
}

// scriptTable reads a table; values are in stored form: times as integers.
func scriptTable(input string) (cols []millrace.Column, rows [][]cell) {
	lines := strings.Split(input, "\n")
	for c := range strings.SplitSeq(lines[0], ";") {
		name, typ, _ := strings.Cut(strings.TrimSpace(c), " ")
		cols = append(cols, column(name, typ))
	}
	for _, line := range lines[1:] {
		r := make([]cell, len(cols))
		for i, s := range strings.Split(line, "|") {
			r[i] = scriptCell(cols[i].Type, strings.TrimSpace(s))
		}
		rows = append(rows, r)
	}
	return cols, rows
}

func scriptCell(t millrace.DataType, s string) cell {
	if s == "NULL" {
		return nil
	}
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	switch t.Kind {
	case millrace.Boolean:
		return s == "true"
	case millrace.Float, millrace.Double:
		bits := 64
		if t.Kind == millrace.Float {
			bits = 32
		}
		f, err := strconv.ParseFloat(s, bits)
		must(err)
		return f
	case millrace.Decimal:
		r, ok := new(big.Rat).SetString(s)
		if !ok {
			panic(s)
		}
		r.Mul(r, new(big.Rat).SetInt(pow10(t.Scale)))
		return r.Num()
	case millrace.Char, millrace.String, millrace.Binary, millrace.Bytes:
		u, err := strconv.Unquote(`"` + s + `"`)
		must(err)
		return u
	case millrace.Array, millrace.Map, millrace.Row:
		return struct{}{}
	default:
		n, err := strconv.ParseInt(s, 10, 64)
		must(err)
		return n
	}
}

// format writes an expression with all its parentheses.
func format(e expr) string {
	not := func(n bool) string {
		if n {
			return "not "
		}
		return ""
	}
	switch e := e.(type) {
	case logic:
		word := " and "
		if e.or {
			word = " or "
		}
		var parts []string
		for _, a := range e.args {
			parts = append(parts, format(a))
		}
		return "(" + strings.Join(parts, word) + ")"
	case negation:
		return "not(" + format(e.arg) + ")"
	case comparison:
		for text, op := range map[string]compareOp{"=": opEqual, "<>": opNotEqual, "<": opLess, "<=": opLessEqual, ">": opGreater, ">=": opGreaterEqual} {
			if op == e.op {
				return "[" + format(e.left) + " " + text + " " + format(e.right) + "]"
			}
		}
	case membership:
		var list []string
		for _, a := range e.list {
			list = append(list, format(a))
		}
		return "[" + format(e.left) + " " + not(e.not) + "in " + strings.Join(list, ", ") + "]"
	case between:
		return "[" + format(e.left) + " " + not(e.not) + "between " + format(e.low) + " and " + format(e.high) + "]"
	case like:
		s := "[" + format(e.left) + " " + not(e.not) + "like " + format(e.pattern)
		if e.escape != nil {
			s += " escape " + format(e.escape)
		}
		return s + "]"
	case nullTest:
		return "[" + format(e.left) + " is " + not(e.not) + "null]"
	case columnRef:
		return e.name
	case parameter:
		return fmt.Sprintf("?%d", e.n+1)
	case currentTime:
		s := "now"
		for _, by := range e.shifts {
			s += fmt.Sprintf("%+ds%+dmonths", by.seconds, by.months)
		}
		return s
	case literal:
		return formatValue(e.value)
	}
	panic(fmt.Sprintf("%T", e))
}

func formatValue(v value) string {
	at := time.Unix(v.instant.sec, v.instant.nsec).UTC()
	switch v.kind {
	case valueNull:
		return "null"
	case valueBool:
		return strconv.FormatBool(v.yes)
	case valueNumber:
		sign := ""
		if v.num.neg {
			sign = "-"
		}
		return fmt.Sprintf("%s.%se%d", sign, v.num.digits, v.num.exp)
	case valueText:
		return strconv.Quote(v.str)
	case valueBytes:
		return fmt.Sprintf("%x", v.str)
	case valueDate:
		return "date:" + at.Format(time.DateOnly)
	case valueTime:
		return "time:" + at.Format("15:04:05.999999999")
	case valueTimestamp:
		return "timestamp:" + at.Format("2006-01-02T15:04:05.999999999")
	default:
		return "instant:" + at.Format(time.RFC3339Nano)
	}
}
