package router

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// groups are the distinct combinations of values that rows have in some columns.
type groups struct {
	of    []int32 // the group of each row
	first []int32 // a row of each group
}

// groupRows finds the groups of a record's rows by some of its columns, which are
// scalars without NULLs. Values mostly repeat from one row to the next.
func groupRows(rec arrow.RecordBatch, cols []int) groups {
	g := groups{of: make([]int32, rec.NumRows())}
	g.first = groupValues(rec.Column(cols[0]), g.of)
	for _, c := range cols[1:] {
		of := make([]int32, len(g.of))
		first := groupValues(rec.Column(c), of)
		both := make([]int64, len(of))
		for i, n := range of {
			both[i] = int64(n) + int64(g.of[i])*int64(len(first))
		}
		g.first = groupEqual(both, g.of)
	}
	return g
}

// groupValues numbers the distinct values of an array in the order they come, into of,
// and returns the first row of each.
func groupValues(arr arrow.Array, of []int32) []int32 {
	switch a := arr.(type) {
	case *array.String:
		return groupBy(a.Value, of)
	case *array.Int64:
		return groupEqual(a.Values(), of)
	case *array.Int32:
		return groupEqual(a.Values(), of)
	case *array.Date32:
		return groupEqual(a.Values(), of)
	case *array.Timestamp:
		return groupEqual(a.Values(), of)
	case *array.Int16:
		return groupEqual(a.Values(), of)
	case *array.Int8:
		return groupEqual(a.Values(), of)
	case *array.Time32:
		return groupEqual(a.Values(), of)
	case *array.Time64:
		return groupEqual(a.Values(), of)
	case *array.Decimal128:
		return groupEqual(a.Values(), of)
	case *array.Boolean:
		return groupBy(a.Value, of)
	case *array.Binary:
		return groupBy(a.ValueString, of)
	case *array.FixedSizeBinary:
		return groupBy(func(i int) string { return string(a.Value(i)) }, of)
	}
	panic(fmt.Sprintf("router: %v cannot be in a partition", arr.DataType()))
}

func groupEqual[T comparable](vals []T, of []int32) (first []int32) {
	seen := map[T]int32{}
	for i, v := range vals {
		if i > 0 && v == vals[i-1] {
			of[i] = of[i-1]
			continue
		}
		n, ok := seen[v]
		if !ok {
			n = int32(len(first))
			seen[v] = n
			first = append(first, int32(i))
		}
		of[i] = n
	}
	return first
}

func groupBy[T comparable](value func(i int) T, of []int32) (first []int32) {
	seen := map[T]int32{}
	var last T
	for i := range of {
		v := value(i)
		if i > 0 && v == last {
			of[i] = of[i-1]
			continue
		}
		last = v
		n, ok := seen[v]
		if !ok {
			n = int32(len(first))
			seen[v] = n
			first = append(first, int32(i))
		}
		of[i] = n
	}
	return first
}

// run is rows of one group and bucket: those at [from, to) of what arrange ordered.
type run struct {
	group    int32
	bucket   uint16
	from, to int
}

// arrange orders rows by group and bucket, keeping their order within each, and says
// where each begins. groups and buckets are by row of the record, nil when all are 0.
func arrange(rows, groups []int32, nGroups int, buckets []uint16, nBuckets int) ([]int32, []run) {
	runs := []run{{to: len(rows)}}
	if groups != nil {
		out := make([]int32, len(rows))
		runs = runs[:0]
		sortBy(out, rows, groups, make([]int, nGroups), func(key int32, from, to int) {
			runs = append(runs, run{group: key, from: from, to: to})
		})
		rows = out
	}
	if buckets == nil || nBuckets == 1 {
		return rows, runs
	}
	out := make([]int32, len(rows))
	counts := make([]int, nBuckets)
	var all []run
	for _, r := range runs {
		sortBy(out[r.from:r.to], rows[r.from:r.to], buckets, counts, func(key uint16, from, to int) {
			all = append(all, run{group: r.group, bucket: key, from: r.from + from, to: r.from + to})
		})
	}
	return out, all
}

// sortBy orders rows by their keys into out, and gives the range of each key there is.
// counts is scratch, a zero for each possible key, and is so again afterwards.
func sortBy[K int32 | uint16](out, rows []int32, keys []K, counts []int, give func(key K, from, to int)) {
	var there []K
	for _, r := range rows {
		k := keys[r]
		if counts[k] == 0 {
			there = append(there, k)
		}
		counts[k]++
	}
	slices.Sort(there)
	at := 0
	for _, k := range there {
		give(k, at, at+counts[k])
		counts[k], at = at, at+counts[k] // from here on: where its next row goes
	}
	for _, r := range rows {
		k := keys[r]
		out[counts[k]] = r
		counts[k]++
	}
	for _, k := range there {
		counts[k] = 0
	}
}
