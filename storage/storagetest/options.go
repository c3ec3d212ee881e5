package storagetest

import (
	"math"
	"math/big"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	millrace "github.com/millrace/millrace"
)

// AggregateColumns are the columns of tables that aggregate; the first two are the key.
var AggregateColumns = []string{
	"k1 BIGINT NOT NULL", "k2 STRING NOT NULL", "i1 TINYINT", "i2 SMALLINT", "i4 INT", "i8 BIGINT", "f FLOAT", "x DOUBLE",
	"d5 DECIMAL(5,2)", "d12 DECIMAL(12,5)", "d38 DECIMAL(38,0)", "b BOOLEAN", "s STRING", "c CHAR(20)", "dt DATE", "ts TIMESTAMP(3)",
}

// KeyedTable makes a keyed table with a random merge engine and random options.
func (g *Generator) KeyedTable(id millrace.TableID, buckets, shards int) *Table {
	engine := []millrace.MergeEngine{millrace.LastRow, millrace.LastRow, millrace.FirstRow, millrace.Versioned, millrace.Aggregation}[g.Rng.IntN(5)]
	columns := KeyedColumns
	if engine == millrace.Aggregation {
		columns = AggregateColumns
	}
	number := g.Rng.IntN(3) == 0
	if number {
		columns = append(slices.Clip(columns), []string{"id INT NOT NULL", "id BIGINT"}[g.Rng.IntN(2)])
	}
	t := NewTable(id, buckets, shards, 2, columns...)
	t.Schema.Columns[len(columns)-1].AutoIncrement = number
	o := &t.Options
	o.MergeEngine = engine
	o.SkipUnchanged = g.Rng.IntN(3) == 0
	o.Deletes = []millrace.DeleteBehavior{millrace.AllowDeletes, millrace.AllowDeletes, millrace.AllowDeletes, millrace.IgnoreDeletes, millrace.DisableDeletes}[g.Rng.IntN(5)]
	if g.Rng.IntN(3) == 0 {
		o.Image = millrace.WALImage
	}
	switch engine {
	case millrace.Versioned:
		o.VersionColumn = t.Schema.Columns[2+g.Rng.IntN(3)].ID
	case millrace.Aggregation:
		o.Aggregates = g.aggregates(t)
	default:
	}
	return t
}

// aggregates draws a function for most columns.
func (g *Generator) aggregates(t *Table) map[millrace.ColumnID]millrace.Aggregate {
	out := map[millrace.ColumnID]millrace.Aggregate{}
	all := []millrace.AggregateFunction{
		millrace.AggSum, millrace.AggProduct, millrace.AggMin, millrace.AggMax, millrace.AggListagg, millrace.AggBoolAnd, millrace.AggBoolOr,
		millrace.AggLastValue, millrace.AggLastValueIgnoreNulls, millrace.AggFirstValue, millrace.AggFirstValueIgnoreNulls,
	}
	for _, c := range t.Schema.Columns[2:] {
		if c.AutoIncrement {
			continue
		}
		a := millrace.Aggregate{Function: all[g.Rng.IntN(len(all))]}
		if !a.Function.Takes(c.Type) {
			continue
		}
		if a.Function == millrace.AggListagg && g.Rng.IntN(2) == 0 {
			a.Delimiter = "; "
		}
		out[c.ID] = a
	}
	return out
}

// value makes a value for a column: small, so that values meet and sums stay in their
// type for a while, and at times at the edge of it.
func (g *Generator) value(t *Table, c millrace.Column) any {
	if t.Options.MergeEngine != millrace.Aggregation {
		switch c.Type.Kind {
		case millrace.Int:
			return g.int()
		case millrace.BigInt:
			return g.next
		case millrace.String:
			return g.text()
		default:
			return g.double()
		}
	}
	if g.null() {
		return nil
	}
	edge := g.Rng.IntN(40) == 0
	n := int64(g.Rng.IntN(9) - 4)
	switch c.Type.Kind {
	case millrace.Boolean:
		return n > 0
	case millrace.TinyInt:
		if edge {
			return int8(math.MinInt8)
		}
		return int8(n)
	case millrace.SmallInt:
		if edge {
			return int16(math.MaxInt16)
		}
		return int16(n)
	case millrace.Int:
		if edge {
			return int32(math.MinInt32)
		}
		return int32(n)
	case millrace.BigInt:
		if edge {
			return int64(math.MinInt64)
		}
		return n * 1000
	case millrace.Float:
		return float32(g.float(edge, n))
	case millrace.Double:
		return g.float(edge, n)
	case millrace.Decimal:
		v := big.NewInt(n * 37)
		if edge {
			v.Exp(big.NewInt(10), big.NewInt(int64(c.Type.Precision)), nil).Sub(v, big.NewInt(1))
		}
		return decimal128.FromBigInt(v)
	case millrace.Date:
		return arrow.Date32(n)
	case millrace.Timestamp:
		return arrow.Timestamp(n)
	default:
		return []string{"", "a", "b", "ü", "cc"}[g.Rng.IntN(5)]
	}
}

func (g *Generator) float(edge bool, n int64) float64 {
	if edge {
		return []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), math.MaxFloat32}[g.Rng.IntN(5)]
	}
	return float64(n) / 3
}
