package filter

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	millrace "github.com/millrace/millrace"
)

var genTypes = []string{
	"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE",
	"DECIMAL(5,2)", "DECIMAL(20,0)", "DECIMAL(38,10)", "DECIMAL(38,38)", "DECIMAL(38,0)",
	"CHAR(3)", "STRING", "BINARY(2)", "BYTES", "DATE", "TIME(0)", "TIME(3)", "TIME(6)", "TIME(9)",
	"TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(6)",
	"ARRAY<INT>", "MAP<STRING, INT>", "ROW<x INT>",
}

// generator makes random schemas, rows and expressions with their truth.
type generator struct {
	*rapid.T
	cols   []millrace.Column
	rows   [][]cell
	params []json.RawMessage
	now    time.Time
}

func newGenerator(t *rapid.T) *generator {
	g := &generator{T: t, now: time.Date(2026, 2, 28, 10, 0, 0, 123456789, time.UTC)}
	for i := range g.n("columns", 1, 6) {
		g.cols = append(g.cols, column(fmt.Sprintf("c%d", i), g.pick("type", genTypes...)))
	}
	nulls := g.n("nulls in ten", 0, 4)
	for range g.n("rows", 0, 30) {
		r := make([]cell, len(g.cols))
		for i, c := range g.cols {
			if g.n("null", 0, 9) >= nulls {
				r[i] = g.cell(c.Type)
			}
		}
		g.rows = append(g.rows, r)
	}
	return g
}

func (g *generator) n(label string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(g.T, label) }

func (g *generator) pick(label string, of ...string) string {
	return rapid.SampledFrom(of).Draw(g.T, label)
}

func (g *generator) chance(label string, oneIn int) bool { return g.n(label, 1, oneIn) == 1 }

// cell draws from few values, extremes among them, so that rows and literals meet.
func (g *generator) cell(t millrace.DataType) cell {
	small := int64(g.n("value", -3, 3))
	switch t.Kind {
	case millrace.Boolean:
		return small > 0
	case millrace.TinyInt, millrace.SmallInt, millrace.Int, millrace.BigInt:
		bits := map[millrace.Kind]int{millrace.TinyInt: 7, millrace.SmallInt: 15, millrace.Int: 31, millrace.BigInt: 63}[t.Kind]
		top := int64(uint64(1)<<bits - 1)
		switch g.n("extreme", 0, 5) {
		case 0:
			return top - max(small, 0)
		case 1:
			return -top - 1 + max(small, 0)
		case 2:
			if t.Kind == millrace.BigInt {
				return 1<<53 + small
			}
		}
		return small
	case millrace.Float, millrace.Double:
		f := []float64{
			0, math.Copysign(0, -1), 0.1, -0.1, 0.5, 1, -1, 2, 3, math.NaN(), math.Inf(1), math.Inf(-1),
			math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, 1 << 53, 1<<53 + 2, 1 << 63, -1 << 63, 16777216, math.MaxFloat32,
		}[g.n("float", 0, 20)]
		if t.Kind == millrace.Float {
			f = float64(float32(f))
		}
		return f
	case millrace.Decimal:
		most := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(t.Precision)), nil)
		most.Sub(most, big.NewInt(1))
		switch g.n("extreme", 0, 5) {
		case 0:
			return most
		case 1:
			return most.Neg(most)
		case 2: // a whole number, so that it meets integers
			v := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(t.Scale)), nil)
			if v.Mul(v, big.NewInt(small)); new(big.Int).Abs(v).Cmp(most) <= 0 {
				return v
			}
		}
		return big.NewInt(small * 10)
	case millrace.Char:
		return g.text(3)
	case millrace.String:
		return g.longText() + g.text(3)
	case millrace.Binary:
		return string([]byte{byte(small), byte(small * 3)})
	case millrace.Bytes:
		return string([]byte{0, 255, byte(small)}[:g.n("length", 0, 3)])
	case millrace.Date:
		return 20000 + small
	case millrace.Time:
		return (int64(time.Hour)*12 + small*int64(time.Second) + small*1000) / refUnit(t)
	case millrace.Timestamp, millrace.TimestampLTZ:
		v := 20000*86400*int64(time.Second) + small*int64(12*time.Hour) + int64(g.n("fraction", 0, 2))*1001
		if g.chance("before 1970", 4) {
			v = -small*int64(time.Hour) - 1500
		}
		return new(big.Int).Div(big.NewInt(v), big.NewInt(refUnit(t))).Int64()
	default:
		return struct{}{}
	}
}

func (g *generator) text(most int) string {
	var s strings.Builder
	for range g.n("length", 0, most) {
		s.WriteString(g.pick("letter", "a", "b", "é", "%", "_", "'", "😀"))
	}
	return s.String()
}

// longText is sometimes longer than a bound of statistics.
func (g *generator) longText() string {
	return strings.Repeat("b", 31*g.n("long", 0, 6)/6)
}

// literal draws a value that may stand against a column of type t, near that
// column's values: as a literal or as a parameter.
func (g *generator) literal(t millrace.DataType) refOperand {
	if g.chance("null", 12) {
		if g.chance("param", 3) {
			g.params = append(g.params, json.RawMessage("null"))
			return refOperand{"?", func([]cell) *refValue { return nil }}
		}
		return refOperand{"NULL", func([]cell) *refValue { return nil }}
	}
	switch t.Kind {
	case millrace.Boolean:
		yes := g.chance("yes", 2)
		word := strconv.FormatBool(yes)
		return g.rendered(refCell(t, yes), g.pick("form", strings.ToUpper(word), "'"+word+"'"), word)
	case millrace.TinyInt, millrace.SmallInt, millrace.Int, millrace.BigInt, millrace.Float, millrace.Double, millrace.Decimal:
		return g.numberLiteral(t)
	case millrace.Char, millrace.String:
		s := g.longText() + g.text(4)
		return g.rendered(&refValue{str: s, isStr: true}, sqlText(s), jsonText(s))
	case millrace.Binary, millrace.Bytes:
		s := g.cell(millrace.DataType{Kind: t.Kind}).(string)
		if g.chance("other length", 6) {
			s += "x"
		}
		b64 := base64.StdEncoding.EncodeToString([]byte(s))
		if g.chance("url", 2) {
			b64 = base64.RawURLEncoding.EncodeToString([]byte(s))
		}
		return g.rendered(&refValue{str: s, isStr: true}, g.pick("form", sqlText(b64), "X'"+hex.EncodeToString([]byte(s))+"'"), jsonText(b64))
	default:
		return g.timeLiteral(t)
	}
}

// rendered is a constant, written as a literal or given as a parameter.
func (g *generator) rendered(v *refValue, sql, param string) refOperand {
	if g.chance("param", 4) {
		g.params = append(g.params, json.RawMessage(param))
		sql = "?"
	}
	return refOperand{sql, func([]cell) *refValue { return v }}
}

func (g *generator) numberLiteral(t millrace.DataType) refOperand {
	float := t.Kind == millrace.Float || t.Kind == millrace.Double
	if float && g.chance("special", 8) {
		word := g.pick("special", "NaN", "Infinity", "-Infinity")
		f, err := strconv.ParseFloat(word, 64)
		if err != nil {
			g.Fatal(err)
		}
		return g.rendered(refFloat(f), sqlText(word), jsonText(word))
	}
	near := refCell(t, g.cell(t))
	if near.beyond != 0 {
		near = refInt(1)
	}
	r := new(big.Rat).Set(near.rat)
	switch g.n("off", 0, 7) {
	case 0:
		r.Add(r, big.NewRat(1, 2))
	case 1:
		r.Sub(r, big.NewRat(1, 1))
	case 2:
		r.Add(r, new(big.Rat).SetFrac(big.NewInt(1), pow10(30)))
	case 3:
		r.SetInt(pow10(g.n("huge", 0, 420)))
	case 4:
		r.SetFrac(big.NewInt(-1), pow10(g.n("tiny", 0, 420)))
	case 5:
		r.SetFrac(big.NewInt(int64(g.n("tenths", -20, 20))), big.NewInt(10))
	}
	text := strings.TrimRight(strings.TrimRight(r.FloatString(1100), "0"), ".")
	if back, ok := new(big.Rat).SetString(text); !ok || back.Cmp(r) != 0 {
		g.Fatalf("%s is not written exactly", r)
	}
	exact := &refValue{rat: r}
	rounded := exact
	if float { // what stands for a value of the column's type
		if f, _ := r.Float64(); !math.IsInf(f, 0) && t.Kind == millrace.Double {
			rounded = refFloat(f)
		}
		if f, _ := r.Float32(); !math.IsInf(float64(f), 0) && t.Kind == millrace.Float {
			rounded = refFloat(float64(f))
		}
	}
	switch g.n("form", 0, 3) {
	case 0:
		return g.rendered(rounded, sqlText(text), jsonText(text))
	case 1:
		return g.rendered(rounded, text+"e0", text+"E+00")
	case 2:
		if !strings.Contains(text, ".") {
			text += "."
		}
	}
	return refOperand{text, func([]cell) *refValue { return exact }}
}

// plainLiteral is a number that has one meaning beside any other.
func (g *generator) plainLiteral() refOperand {
	mantissa, exp := g.n("mantissa", -20, 20), g.n("exponent", -2, 2)
	text := fmt.Sprintf("%de%d", mantissa, exp)
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		g.Fatal(text)
	}
	return refOperand{text, func([]cell) *refValue { return &refValue{rat: r} }}
}

func (g *generator) timeLiteral(t millrace.DataType) refOperand {
	c := g.cell(t).(int64)
	nanos := new(big.Int).Mul(big.NewInt(c), big.NewInt(refUnit(t)))
	if g.chance("off", 3) {
		nanos.Add(nanos, big.NewInt(int64(g.n("nanos", -1, 1))*500))
	}
	sec, nsec := new(big.Int).DivMod(nanos, big.NewInt(1e9), new(big.Int))
	at := time.Unix(sec.Int64(), nsec.Int64()).UTC()
	v := &refValue{rat: new(big.Rat).SetInt(nanos)}
	sep := g.pick("separator", "T", " ")
	switch t.Kind {
	case millrace.Time:
		s := at.Format("15:04:05.999999999")
		return g.rendered(v, g.pick("form", sqlText(s), "TIME "+sqlText(s)), jsonText(s))
	case millrace.Date:
		if g.chance("timestamp", 3) {
			return refOperand{"TIMESTAMP " + sqlText(at.Format("2006-01-02"+sep+"15:04:05.999999999")), func([]cell) *refValue { return v }}
		}
		s := at.Format(time.DateOnly)
		v = &refValue{rat: new(big.Rat).Mul(big.NewRat(floorDiv(sec.Int64(), 86400)*86400, 1), big.NewRat(1e9, 1))}
		return g.rendered(v, g.pick("form", sqlText(s), "date "+sqlText(s)), jsonText(s))
	case millrace.TimestampLTZ:
		if g.chance("now", 4) {
			hours := int64(g.n("hours", -30, 30))
			r := new(big.Rat).SetInt(new(big.Int).Add(big.NewInt(g.now.UnixNano()), big.NewInt(hours*int64(time.Hour))))
			return refOperand{fmt.Sprintf("CURRENT_TIMESTAMP + interval '%d' hours", hours), func([]cell) *refValue { return &refValue{rat: r} }}
		}
		zone := time.FixedZone("", 60*g.n("zone", -600, 600))
		s := at.In(zone).Format("2006-01-02" + sep + "15:04:05.999999999Z07:00")
		return g.rendered(v, g.pick("form", sqlText(s), "TIMESTAMP_LTZ "+sqlText(s)), jsonText(s))
	default:
	}
	s := at.Format("2006-01-02" + sep + "15:04:05.999999999")
	return g.rendered(v, g.pick("form", sqlText(s), "timestamp "+sqlText(s)), jsonText(s))
}

func floorDiv(a, b int64) int64 {
	return new(big.Int).Div(big.NewInt(a), big.NewInt(b)).Int64()
}

func sqlText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func jsonText(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// column draws a column, its name quoted or not.
func (g *generator) columnNo(i int) refOperand {
	q := g.pick("quote", "", "", "\"", "`")
	return refColumn(g.cols, i, q+g.cols[i].Name+q)
}

func (g *generator) anyColumn() int { return g.n("column", 0, len(g.cols)-1) }

// scalarColumn draws a column that can be compared; false if there is none.
func (g *generator) scalarColumn(fits func(millrace.DataType) bool) (int, bool) {
	var of []int
	for i, c := range g.cols {
		if !c.Type.Nested() && fits(c.Type) {
			of = append(of, i)
		}
	}
	if len(of) == 0 {
		return 0, false
	}
	return rapid.SampledFrom(of).Draw(g.T, "column"), true
}

// group puts types together that compare with each other.
func group(t millrace.DataType) string {
	switch t.Kind {
	case millrace.TinyInt, millrace.SmallInt, millrace.Int, millrace.BigInt, millrace.Float, millrace.Double, millrace.Decimal:
		return "number"
	case millrace.Char, millrace.String:
		return "text"
	case millrace.Binary, millrace.Bytes:
		return "binary"
	case millrace.Date, millrace.Timestamp, millrace.TimestampLTZ:
		return "date"
	default:
		return t.Kind.String()
	}
}

// against draws what may stand against column i: mostly a literal.
func (g *generator) against(i int) refOperand {
	t := g.cols[i].Type
	if g.chance("other column", 4) {
		if j, ok := g.scalarColumn(func(o millrace.DataType) bool { return group(o) == group(t) }); ok {
			return g.columnNo(j)
		}
	}
	return g.literal(t)
}

func (g *generator) expr(depth int) refExpr {
	if depth == 0 || g.chance("leaf", 3) {
		return g.leaf()
	}
	if g.chance("not", 4) {
		e := g.expr(depth - 1)
		return refExpr{"NOT (" + e.text + ")", func(r []cell) truth { return not3(e.truth(r)) }}
	}
	word, join := " AND ", refAnd
	if g.chance("or", 2) {
		word, join = " or ", refOr
	}
	var e refExpr
	for i := range g.n("parts", 2, 4) {
		next := g.expr(depth - 1)
		next.text = "(" + next.text + ")"
		if i == 0 {
			e = next
			continue
		}
		before := e.truth
		e = refExpr{e.text + word + next.text, func(r []cell) truth { return join(before(r), next.truth(r)) }}
	}
	return e
}

func (g *generator) leaf() refExpr {
	not := ""
	if g.chance("negated", 3) {
		not = "NOT "
	}
	always := func(text string, t truth) refExpr { return refExpr{text, func([]cell) truth { return t }} }
	i, ok := g.scalarColumn(func(millrace.DataType) bool { return true })
	switch kind := g.n("kind", 0, 11); {
	case kind == 0 || !ok:
		j := g.anyColumn()
		c := g.columnNo(j)
		return refExpr{c.text + " IS " + not + "NULL", func(r []cell) truth { return refMaybe(not != "", truthOf(r[j] == nil)) }}
	case kind == 1:
		switch g.n("constant", 0, 3) {
		case 0:
			return always("TRUE", isTrue)
		case 1:
			return always("false", isFalse)
		case 2:
			return always("(NULL)", isUnknown)
		}
		return refComparison(g.plainLiteral(), g.op(), g.plainLiteral())
	case kind == 2:
		if j, ok := g.scalarColumn(func(t millrace.DataType) bool { return t.Kind == millrace.Boolean }); ok {
			c := g.columnNo(j)
			return refExpr{c.text, func(r []cell) truth {
				if v := c.value(r); v != nil {
					return truthOf(v.rat.Sign() != 0)
				}
				return isUnknown
			}}
		}
	case kind == 3:
		if j, ok := g.scalarColumn(func(t millrace.DataType) bool { return group(t) == "text" }); ok {
			return g.like(g.columnNo(j), not)
		}
	case kind == 4:
		c, lo, hi := g.columnNo(i), g.against(i), g.against(i)
		low, high := refComparison(c, ">=", lo), refComparison(c, "<=", hi)
		return refExpr{c.text + " " + not + "BETWEEN " + lo.text + " AND " + hi.text, func(r []cell) truth {
			return refMaybe(not != "", refAnd(low.truth(r), high.truth(r)))
		}}
	case kind == 5 || kind == 6:
		return g.in(i, not)
	case kind == 7:
		return refComparison(g.literal(g.cols[i].Type), g.op(), g.columnNo(i))
	}
	return refComparison(g.columnNo(i), g.op(), g.against(i))
}

func (g *generator) op() string { return g.pick("op", "=", "<>", "!=", "<", "<=", ">", ">=") }

func (g *generator) in(i int, not string) refExpr {
	c := g.columnNo(i)
	var texts []string
	var equal []refExpr
	for range g.n("list", 1, 6) {
		v := g.against(i)
		texts = append(texts, v.text)
		equal = append(equal, refComparison(c, "=", v))
	}
	return refExpr{c.text + " " + not + "IN (" + strings.Join(texts, ", ") + ")", func(r []cell) truth {
		t := isFalse
		for _, e := range equal {
			t = refOr(t, e.truth(r))
		}
		return refMaybe(not != "", t)
	}}
}

func (g *generator) like(c refOperand, not string) refExpr {
	var text strings.Builder
	var pattern []rune
	escape := g.pick("escape", "", "!", "é", "%")
	for range g.n("pattern", 0, 5) {
		switch s := g.pick("part", "a", "b", "é", "😀", "any", "any", "one", "literal"); s {
		case "any":
			if escape != "%" {
				text.WriteString("%")
				pattern = append(pattern, -1)
			}
		case "one":
			text.WriteString("_")
			pattern = append(pattern, -2)
		case "literal":
			if escape != "" {
				of := g.pick("escaped", "%", "_", escape)
				text.WriteString(escape + of)
				pattern = append(pattern, []rune(of)...)
			}
		default:
			if s != escape {
				text.WriteString(s)
				pattern = append(pattern, []rune(s)...)
			}
		}
	}
	sql := c.text + " " + not + "LIKE " + sqlText(text.String())
	if escape != "" {
		sql += " ESCAPE " + sqlText(escape)
	}
	return refExpr{sql, func(r []cell) truth {
		v := c.value(r)
		if v == nil {
			return isUnknown
		}
		return refMaybe(not != "", truthOf(refLike([]rune(v.str), pattern)))
	}}
}
