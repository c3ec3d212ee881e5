package storage_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/storagetest"
)

// engineColumns are those of the tables below; k is the key.
var engineColumns = []string{"k BIGINT NOT NULL", "n INT", "s STRING"}

// A wr is a write to such a table.
type wr = *storagetest.Write

func row3(k, n, s any) storagetest.Row {
	r := storagetest.Row{int64(k.(int)), n, s}
	if v, ok := n.(int); ok {
		r[1] = int32(v)
	}
	return r
}

// upsert writes whole rows, each of k, n and s.
func upsert(vals ...any) wr {
	w := &storagetest.Write{}
	for i := 0; i < len(vals); i += 3 {
		w.Rows = append(w.Rows, row3(vals[i], vals[i+1], vals[i+2]))
	}
	return w
}

// remove deletes a key.
func remove(k int) wr {
	return &storagetest.Write{Rows: []storagetest.Row{row3(k, nil, nil)}, Deletes: []bool{true}}
}

// both writes rows of two writes at once.
func both(a, b wr) wr {
	out := &storagetest.Write{Set: a.Set}
	for _, w := range []wr{a, b} {
		for range w.Rows {
			out.Deletes = append(out.Deletes, w.Deletes != nil)
			out.Absent = append(out.Absent, w.Absent != nil)
		}
		out.Rows = append(out.Rows, w.Rows...)
	}
	return out
}

// partly makes a write name some columns: "n" is k and n.
func partly(cols string, w wr) wr {
	w.Set = []bool{true, strings.Contains(cols, "n"), strings.Contains(cols, "s")}
	return w
}

// absent makes a write one of rows whose key must not be there.
func absent(w wr) wr {
	w.Absent = make([]bool, len(w.Rows))
	for i := range w.Absent {
		w.Absent[i] = true
	}
	return w
}

func engine(e millrace.MergeEngine) millrace.TableOptions {
	o := millrace.TableOptions{MergeEngine: e}
	switch e {
	case millrace.Versioned:
		o.VersionColumn = 2
	case millrace.Aggregation:
		o.Aggregates = map[millrace.ColumnID]millrace.Aggregate{2: {Function: millrace.AggSum}, 3: {Function: millrace.AggListagg}}
	default:
	}
	return o
}

func with(o millrace.TableOptions, change func(*millrace.TableOptions)) millrace.TableOptions {
	change(&o)
	return o
}

func walImage(o *millrace.TableOptions) { o.Image = millrace.WALImage }
func skip(o *millrace.TableOptions)     { o.SkipUnchanged = true }
func ignore(o *millrace.TableOptions)   { o.Deletes = millrace.IgnoreDeletes }
func disable(o *millrace.TableOptions)  { o.Deletes = millrace.DisableDeletes }

// Shows each rule of what a write to a keyed table does, by writes and the changelog
// that they must give, under every merge engine and option; and that a start from the
// log after a crash gives the same.
func TestWriteTable(t *testing.T) {
	last, first := engine(millrace.LastRow), engine(millrace.FirstRow)
	version, agg := engine(millrace.Versioned), engine(millrace.Aggregation)
	for _, c := range []struct {
		name    string
		options millrace.TableOptions
		writes  []wr
		want    string    // the changelog
		code    errs.Code // of the last write
	}{
		{"upsert, key absent", last, []wr{upsert(1, 2, "a")}, "+I 1|2|a", ""},
		{"upsert, key present", last, []wr{upsert(1, 2, "a"), upsert(1, 3, nil)}, "+I 1|2|a, -U 1|2|a, +U 1|3|<nil>", ""},
		{"upsert, identical row", last, []wr{upsert(1, 2, "a"), upsert(1, 2, "a")}, "+I 1|2|a, -U 1|2|a, +U 1|2|a", ""},
		{"upsert, identical row, skipped", with(last, skip), []wr{upsert(1, 2, "a"), upsert(1, 2, "a"), upsert(1, 3, "a")}, "+I 1|2|a, -U 1|2|a, +U 1|3|a", ""},
		{"delete, key present", last, []wr{upsert(1, 2, "a"), remove(1)}, "+I 1|2|a, -D 1|2|a", ""},
		{"delete, key absent", last, []wr{remove(1)}, "", ""},
		{"delete then upsert in one batch", last, []wr{upsert(1, 2, "a"), both(remove(1), upsert(1, 3, "b"))}, "+I 1|2|a, -D 1|2|a, +I 1|3|b", ""},
		{"upsert then delete in one batch", last, []wr{both(upsert(1, 3, "b"), remove(1))}, "+I 1|3|b, -D 1|3|b", ""},
		{"one key twice in one batch", last, []wr{upsert(1, 2, "a", 1, 3, "b")}, "+I 1|2|a, -U 1|2|a, +U 1|3|b", ""},
		{"partial update, key absent", last, []wr{partly("s", upsert(1, 9, "a"))}, "+I 1|<nil>|a", ""},
		{"partial update, key present", last, []wr{upsert(1, 2, "a"), partly("s", upsert(1, 9, "b"))}, "+I 1|2|a, -U 1|2|a, +U 1|2|b", ""},
		{"partial update, a named NULL", last, []wr{upsert(1, 2, "a"), partly("s", upsert(1, 9, nil))}, "+I 1|2|a, -U 1|2|a, +U 1|2|<nil>", ""},
		{"partial update of key columns, key present", last, []wr{upsert(1, 2, "a"), partly("", upsert(1, 9, "b"))}, "+I 1|2|a", ""},
		{"partial update of key columns, key absent", last, []wr{partly("", upsert(1, 9, "b"))}, "+I 1|<nil>|<nil>", ""},
		{"partial update, identical, skipped", with(last, skip), []wr{upsert(1, 2, "a"), partly("s", upsert(1, 9, "a"))}, "+I 1|2|a", ""},
		{"partial delete", last, []wr{upsert(1, 2, "a"), partly("s", remove(1))}, "+I 1|2|a, -U 1|2|a, +U 1|2|<nil>", ""},
		{"partial delete of all that is left", last, []wr{upsert(1, nil, "a"), partly("s", remove(1))}, "+I 1|<nil>|a, -D 1|<nil>|a", ""},
		{"partial delete of what is NULL, skipped", with(last, skip), []wr{upsert(1, 2, nil), partly("s", remove(1))}, "+I 1|2|<nil>", ""},
		{"partial delete, key absent", last, []wr{partly("s", remove(1))}, "", ""},
		{"insert if absent", last, []wr{absent(upsert(1, 2, "a", 1, 3, "b")), absent(upsert(1, 4, "c"))}, "+I 1|2|a", ""},

		{"WAL image", with(last, walImage), []wr{upsert(1, 2, "a"), upsert(1, 3, "b"), partly("s", upsert(1, 9, nil)), remove(1), remove(1)}, "+I 1|2|a, +U 1|3|b, +U 1|3|<nil>, -D 1|3|<nil>", ""},
		{"WAL image, aggregation", with(agg, walImage), []wr{upsert(1, 2, "a", 1, 3, "b")}, "+I 1|2|a, +U 1|5|a,b", ""},
		{"WAL image, partial delete", with(last, walImage), []wr{upsert(1, 2, "a"), partly("s", remove(1)), partly("n", remove(1))}, "+I 1|2|a, +U 1|2|<nil>, -D 1|2|<nil>", ""},

		{"deletes ignored", with(last, ignore), []wr{upsert(1, 2, "a"), remove(1), both(remove(1), upsert(1, 3, "b"))}, "+I 1|2|a, -U 1|2|a, +U 1|3|b", ""},
		{"partial deletes ignored", with(last, ignore), []wr{upsert(1, nil, "a"), partly("s", remove(1))}, "+I 1|<nil>|a", ""},
		{"deletes disabled", with(last, disable), []wr{upsert(1, 2, "a"), remove(1)}, "+I 1|2|a", errs.DeleteDisabled},
		{"deletes disabled, key absent", with(last, disable), []wr{remove(1)}, "", errs.DeleteDisabled},
		{"deletes disabled, in a batch", with(last, disable), []wr{upsert(1, 2, "a"), both(upsert(2, 3, "b"), remove(1))}, "+I 1|2|a", errs.DeleteDisabled},
		{"partial deletes disabled", with(last, disable), []wr{upsert(1, 2, "a"), partly("s", remove(1))}, "+I 1|2|a", errs.DeleteDisabled},

		{"first row", first, []wr{upsert(1, 2, "a"), upsert(1, 3, "b", 2, 4, "c", 2, 5, "d")}, "+I 1|2|a, +I 2|4|c", ""},
		{"first row, deletes", first, []wr{upsert(1, 2, "a"), remove(1), both(remove(1), upsert(1, 3, "b")), partly("s", remove(1))}, "+I 1|2|a", ""},
		{"first row, deletes disabled", with(first, disable), []wr{upsert(1, 2, "a"), remove(1)}, "+I 1|2|a", errs.DeleteDisabled},
		{"first row, partial update", first, []wr{partly("s", upsert(1, 9, "a"))}, "", errs.PartialUpdateNotAllowed},
		{"first row, partial update among deletes", first, []wr{upsert(1, 2, "a"), partly("s", both(remove(1), upsert(2, 9, "a")))}, "+I 1|2|a", errs.PartialUpdateNotAllowed},
		{"first row, all columns named", first, []wr{partly("ns", upsert(1, 2, "a", 1, 3, "b"))}, "+I 1|2|a", ""},
		{"first row, insert if absent", first, []wr{absent(upsert(1, 2, "a", 1, 3, "b")), absent(partly("s", upsert(2, 9, "a")))}, "+I 1|2|a, +I 2|<nil>|a", ""},

		{"versioned, higher", version, []wr{upsert(1, 2, "a"), upsert(1, 3, "b")}, "+I 1|2|a, -U 1|2|a, +U 1|3|b", ""},
		{"versioned, equal", version, []wr{upsert(1, 2, "a"), upsert(1, 2, "b")}, "+I 1|2|a, -U 1|2|a, +U 1|2|b", ""},
		{"versioned, lower", version, []wr{upsert(1, 2, "a", 1, 1, "b")}, "+I 1|2|a", ""},
		{"versioned, NULL over a version", version, []wr{upsert(1, -1<<31, "a", 1, nil, "b")}, "+I 1|-2147483648|a", ""},
		{"versioned, NULL over NULL", version, []wr{upsert(1, nil, "a", 1, nil, "b")}, "+I 1|<nil>|a, -U 1|<nil>|a, +U 1|<nil>|b", ""},
		{"versioned, the lowest over NULL", version, []wr{upsert(1, nil, "a", 1, -1<<31, "b")}, "+I 1|<nil>|a, -U 1|<nil>|a, +U 1|-2147483648|b", ""},
		{"versioned, deletes", version, []wr{upsert(1, 2, "a"), remove(1), partly("s", remove(1))}, "+I 1|2|a", ""},
		{"versioned, partial update", version, []wr{upsert(1, 2, "a"), partly("s", upsert(1, 9, "a"))}, "+I 1|2|a", errs.PartialUpdateNotAllowed},
		{"versioned, all columns named", version, []wr{upsert(1, 2, "a"), partly("ns", upsert(1, 1, "b")), partly("ns", upsert(1, 3, "c"))}, "+I 1|2|a, -U 1|2|a, +U 1|3|c", ""},
		{"versioned, identical, skipped", with(version, skip), []wr{upsert(1, 2, "a", 1, 2, "a")}, "+I 1|2|a", ""},
		{"versioned, insert if absent", version, []wr{upsert(1, 2, "a"), absent(upsert(1, 3, "b"))}, "+I 1|2|a", ""},

		{"aggregation", agg, []wr{upsert(1, 2, "a"), upsert(1, 3, "b")}, "+I 1|2|a, -U 1|2|a, +U 1|5|a,b", ""},
		{"aggregation, one key twice", agg, []wr{upsert(1, 2, "a", 1, nil, nil, 1, 3, nil)}, "+I 1|2|a, -U 1|2|a, +U 1|2|a, -U 1|2|a, +U 1|5|a", ""},
		{"aggregation, nothing new, skipped", with(agg, skip), []wr{upsert(1, 2, "a", 1, nil, nil, 1, 0, nil)}, "+I 1|2|a", ""},
		{"aggregation, partial update", agg, []wr{upsert(1, 2, "a"), partly("n", upsert(1, 3, "b"))}, "+I 1|2|a, -U 1|2|a, +U 1|5|a", ""},
		{"aggregation, partial update, key absent", agg, []wr{partly("n", upsert(1, 3, "b")), upsert(1, 1, "c")}, "+I 1|3|<nil>, -U 1|3|<nil>, +U 1|4|c", ""},
		{"aggregation, partial update of key columns", agg, []wr{upsert(1, 2, "a"), partly("", upsert(1, 3, "b"))}, "+I 1|2|a", ""},
		{"aggregation, delete begins anew", agg, []wr{upsert(1, 2, "a"), both(remove(1), upsert(1, 3, "b"))}, "+I 1|2|a, -D 1|2|a, +I 1|3|b", ""},
		{"aggregation, partial delete", agg, []wr{upsert(1, 2, "a"), partly("n", remove(1)), upsert(1, 7, nil)}, "+I 1|2|a, -U 1|2|a, +U 1|<nil>|a, -U 1|<nil>|a, +U 1|7|a", ""},
		{"aggregation, deletes ignored", with(agg, ignore), []wr{upsert(1, 2, "a"), remove(1)}, "+I 1|2|a", ""},
		{"aggregation, overflow", agg, []wr{upsert(1, 1<<31-1, "a"), upsert(2, 1, "a", 1, 1, "b")}, "+I 1|2147483647|a", errs.IntegerOverflow},
		{"aggregation, insert if absent", agg, []wr{upsert(1, 2, "a"), absent(upsert(1, 3, "b"))}, "+I 1|2|a", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := small(t)
			w.MustOpen()
			tbl := storagetest.NewTable(1, 1, 1, 1, engineColumns...)
			tbl.Options = c.options
			m := w.Add(tbl)
			for i, wr := range c.writes {
				want := m.Buckets[0].Write(tbl, wr)
				res, err := w.Shard(tbl, 0).Write(context.Background(), tbl.Op(wr, 0))
				if i == len(c.writes)-1 {
					require.Equal(t, c.code, errs.CodeOf(err), "%v", err)
				} else {
					require.NoError(t, err)
				}
				require.Equal(t, want.Code, errs.CodeOf(err))
				require.Equal(t, want.Start, int64(res.Start))
				require.Equal(t, want.End, int64(res.End))
			}
			for range 2 {
				log, _ := w.ReadLog(tbl, 0)
				require.Equal(t, c.want, changelog(log))
				w.Check()
				w.Crash(0)
			}
			w.Close()
		})
	}
}

// Shows that a list that grows beyond the largest row is refused, with all its batch.
func TestListTooLong(t *testing.T) {
	w := small(t)
	w.MustOpen()
	tbl := storagetest.NewTable(1, 1, 1, 1, engineColumns...)
	tbl.Options = engine(millrace.Aggregation)
	m := w.Add(tbl)
	write(t, w, m, upsert(1, 1, strings.Repeat("x", 600<<10)))
	_, err := w.Shard(tbl, 0).Write(context.Background(), tbl.Op(upsert(2, 1, "a", 1, 1, strings.Repeat("y", 500<<10)), 0))
	require.Equal(t, errs.TooLarge, errs.CodeOf(err))
	w.Check()
	write(t, w, m, upsert(1, 1, strings.Repeat("y", 400<<10)))
	w.Crash(0)
	w.Check()
	w.Close()
}

func changelog(log []storagetest.Change) string {
	var out []string
	for _, c := range log {
		out = append(out, fmt.Sprint(c))
	}
	return strings.Join(out, ", ")
}

// Shows that a table that this release does not understand takes nothing, and no shard
// stops for it.
func TestUnknownEngine(t *testing.T) {
	w := small(t)
	w.MustOpen()
	for i, o := range []millrace.TableOptions{
		{MergeEngine: "median"},
		{MergeEngine: millrace.Versioned, VersionColumn: 99},
		{MergeEngine: millrace.Aggregation, Aggregates: map[millrace.ColumnID]millrace.Aggregate{2: {Function: "median"}}},
	} {
		tbl := storagetest.NewTable(millrace.TableID(i+1), 1, 1, 1, engineColumns...)
		tbl.Options = o
		_, err := w.Shard(tbl, 0).Write(context.Background(), tbl.Op(upsert(1, 2, "a"), 0))
		require.Equal(t, errs.Internal, errs.CodeOf(err))
	}
	w.Close()
}
