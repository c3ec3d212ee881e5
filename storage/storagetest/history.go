package storagetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	millrace "github.com/millrace/millrace"
)

// History is the versions of a table whose schema changes, as ALTER TABLE makes them.
type History struct {
	Rng      *rand.Rand
	Versions []*millrace.Table // the last is the newest
}

// NewHistory begins with the table as it is; nested fields get ids.
func NewHistory(rng *rand.Rand, t *millrace.Table) *History {
	d := *t
	d.Version = 1
	s := *t.Schema
	s.Columns = slices.Clone(s.Columns)
	d.Schema = &s
	for i := range s.Columns {
		d.LastColumnID = max(d.LastColumnID, s.Columns[i].ID)
	}
	for i := range s.Columns {
		s.Columns[i].Type = numbered(s.Columns[i].Type, &d.LastColumnID)
	}
	return &History{Rng: rng, Versions: []*millrace.Table{&d}}
}

// numbered gives the fields of a type ids of their own.
func numbered(t millrace.DataType, last *millrace.ColumnID) millrace.DataType {
	t.Children = slices.Clone(t.Children)
	for i := range t.Children {
		*last++
		t.Children[i].ID = *last
		t.Children[i].Type = numbered(t.Children[i].Type, last)
	}
	return t
}

// Newest is the newest version.
func (h *History) Newest() *millrace.Table { return h.Versions[len(h.Versions)-1] }

// addable are the types of columns and fields that a History adds.
var addable = []string{
	"TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(9,2)", "STRING", "BOOLEAN",
	"ROW<a INT, b STRING>", "ARRAY<ROW<x TINYINT, y FLOAT>>", "MAP<STRING, ROW<v INT, w DECIMAL(5,1)>>", "ARRAY<INT>",
}

// Alter makes a new version: a column or nested field is added, renamed, dropped or
// widened, columns change places, or nothing but the version changes.
func (h *History) Alter() *millrace.Table {
	d := *h.Newest()
	d.Version++
	if h.Rng.IntN(8) > 0 {
		s := *d.Schema
		s.ID++
		for range 1 + h.Rng.IntN(2) {
			s.Columns = h.alterColumns(s.Columns, &d)
		}
		d.Schema = &s
	}
	h.Versions = append(h.Versions, &d)
	return &d
}

func (h *History) alterColumns(cols []millrace.Column, d *millrace.Table) []millrace.Column {
	cols = slices.Clone(cols)
	i := h.Rng.IntN(len(cols))
	key := slices.Contains(d.PrimaryKey, cols[i].ID)
	switch h.Rng.IntN(6) {
	case 0, 1: // a name that was dropped may come again
		d.LastColumnID++
		c := millrace.Column{ID: d.LastColumnID, Name: freeName(h.Rng, cols), Type: mustParse(addable[h.Rng.IntN(len(addable))]), Nullable: true}
		c.Type = numbered(c.Type, &d.LastColumnID)
		cols = slices.Insert(cols, h.Rng.IntN(len(cols)+1), c)
	case 2:
		if !key && len(cols) > len(d.PrimaryKey)+1 {
			cols = slices.Delete(cols, i, i+1)
		}
	case 3:
		cols[i].Name = freeName(h.Rng, cols)
	default:
		if !key {
			cols[i].Type = h.alterType(cols[i].Type, d)
		}
	}
	return cols
}

// freeName is one of few names, so that names come again.
func freeName(rng *rand.Rand, cols []millrace.Column) string {
	for n := 4; ; n++ {
		name := fmt.Sprintf("c%d", rng.IntN(n))
		if !slices.ContainsFunc(cols, func(c millrace.Column) bool { return c.Name == name }) {
			return name
		}
	}
}

func mustParse(s string) millrace.DataType {
	t, err := millrace.ParseType(s)
	if err != nil {
		panic(err)
	}
	return t
}

// alterType widens a type, or changes the fields of a ROW in it.
func (h *History) alterType(t millrace.DataType, d *millrace.Table) millrace.DataType {
	t.Children = slices.Clone(t.Children)
	switch t.Kind {
	case millrace.TinyInt, millrace.SmallInt, millrace.Int:
		t.Kind += millrace.Kind(h.Rng.IntN(int(millrace.BigInt - t.Kind + 1)))
	case millrace.Float:
		t.Kind = millrace.Double
	case millrace.Decimal:
		t.Precision = min(t.Precision+h.Rng.IntN(9), millrace.MaxDecimalPrecision)
	case millrace.Row:
		none := *d
		none.PrimaryKey = nil
		t.Children = h.alterColumns(t.Children, &none)
		d.LastColumnID = none.LastColumnID
	case millrace.Array, millrace.Map:
		last := len(t.Children) - 1
		t.Children[last].Type = h.alterType(t.Children[last].Type, d)
	default:
	}
	return t
}

// Values makes a row for the columns; key columns are left to the caller.
func (h *History) Values(cols []millrace.Column) Values {
	v := Values{}
	for _, c := range cols {
		v[c.ID] = h.value(c.Type)
	}
	return v
}

func (h *History) value(t millrace.DataType) any {
	if h.Rng.IntN(5) == 0 {
		return nil
	}
	list := func(one func() any) []any {
		out := []any{}
		for range h.Rng.IntN(4) {
			out = append(out, one())
		}
		return out
	}
	switch t.Kind {
	case millrace.TinyInt:
		return h.Rng.Int64N(256) - 128
	case millrace.SmallInt:
		return h.Rng.Int64N(1<<16) - 1<<15
	case millrace.Int:
		return h.Rng.Int64N(1<<32) - 1<<31
	case millrace.BigInt:
		return h.Rng.Int64N(1<<40) - 1<<39
	case millrace.Float:
		return float64(float32(h.Rng.IntN(1000)) / 8)
	case millrace.Double:
		return h.Rng.Float64()
	case millrace.Decimal:
		return h.Rng.Int64N(100_000) - 50_000 // unscaled
	case millrace.Boolean:
		return h.Rng.IntN(2) == 0
	case millrace.String:
		return strings.Repeat("s", h.Rng.IntN(12)) + fmt.Sprint(h.Rng.IntN(50))
	case millrace.Row:
		return h.Values(t.Children)
	case millrace.Array:
		return list(func() any { return h.value(t.Children[0].Type) })
	case millrace.Map:
		n := 0
		return list(func() any {
			n++
			return [2]any{fmt.Sprint("k", n), h.value(t.Children[1].Type)}
		})
	default:
		panic(fmt.Sprintf("storagetest: no values of %s", t))
	}
}
