package storage_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/storagetest"
)

// Shows that a column that is numbered gets its number when a row turns out to be new,
// whatever kind of write brings it, and that nothing but a delete of the row takes it
// away; by the changelog that writes must give under each merge engine.
func TestNumberedColumn(t *testing.T) {
	ids := func(w wr, ids ...int64) wr { w.IDs = ids; return w }
	for _, c := range []struct {
		name    string
		options millrace.TableOptions
		writes  []wr
		want    string
	}{
		{
			"upserts",
			millrace.TableOptions{},
			[]wr{ids(upsert(1, 70, "a", 2, 71, "b"), 10, 11), ids(upsert(1, 72, "c"), 12)},
			"+I 1|10|a, +I 2|11|b, -U 1|10|a, +U 1|10|c",
		},
		{"one key twice", millrace.TableOptions{}, []wr{ids(upsert(1, nil, "a", 1, nil, "b"), 10, 11)}, "+I 1|10|a, -U 1|10|a, +U 1|10|b"},
		{
			"partial updates",
			millrace.TableOptions{},
			[]wr{ids(partly("s", upsert(1, nil, "a")), 10), ids(partly("s", upsert(1, nil, "b")), 11)},
			"+I 1|10|a, -U 1|10|a, +U 1|10|b",
		},
		{"partial updates that name it", millrace.TableOptions{}, []wr{ids(partly("ns", upsert(1, nil, "a")), 10), ids(partly("n", upsert(1, 5, nil)), 11)}, "+I 1|10|a"},
		{"insert if absent", millrace.TableOptions{}, []wr{ids(absent(upsert(1, nil, "a", 1, nil, "b", 2, nil, "c")), 10, 11, 12)}, "+I 1|10|a, +I 2|12|c"},
		{
			"delete and insert",
			millrace.TableOptions{},
			[]wr{ids(upsert(1, nil, "a"), 10), ids(both(remove(1), upsert(1, nil, "b")), 0, 12)},
			"+I 1|10|a, -D 1|10|a, +I 1|12|b",
		},
		{"partial delete", millrace.TableOptions{}, []wr{ids(upsert(1, nil, "a"), 10), partly("ns", remove(1))}, "+I 1|10|a, -U 1|10|a, +U 1|10|<nil>"},
		{"identical, skipped", millrace.TableOptions{SkipUnchanged: true}, []wr{ids(upsert(1, nil, "a"), 10), ids(upsert(1, nil, "a"), 11)}, "+I 1|10|a"},
		{"first row", millrace.TableOptions{MergeEngine: millrace.FirstRow}, []wr{ids(upsert(1, nil, "a", 1, nil, "b"), 10, 11)}, "+I 1|10|a"},
		{
			"versioned",
			millrace.TableOptions{MergeEngine: millrace.Versioned, VersionColumn: 3},
			[]wr{ids(upsert(1, nil, "b", 1, nil, "c", 1, nil, "a"), 10, 11, 12)},
			"+I 1|10|b, -U 1|10|b, +U 1|10|c",
		},
		{"aggregation", millrace.TableOptions{MergeEngine: millrace.Aggregation}, []wr{ids(upsert(1, nil, "a", 1, 99, nil), 10, 11)}, "+I 1|10|a, -U 1|10|a, +U 1|10|a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := small(t)
			w.MustOpen()
			tbl := storagetest.NewTable(1, 1, 1, 1, engineColumns...)
			tbl.Schema.Columns[1].AutoIncrement = true
			tbl.Options = c.options
			m := w.Add(tbl)
			for _, wr := range c.writes {
				write(t, w, m, wr)
			}
			log, _ := w.ReadLog(tbl, 0)
			require.Equal(t, c.want, changelog(log))
			w.Check()
			w.Crash(0)
			w.Check()
			w.Close()
		})
	}
}

// Shows that rows without a number for a column that needs one are refused.
func TestNumberMissing(t *testing.T) {
	w := small(t)
	w.MustOpen()
	tbl := storagetest.NewTable(1, 1, 1, 1, engineColumns...)
	tbl.Schema.Columns[1].AutoIncrement = true
	op := tbl.Op(&storagetest.Write{Rows: []storagetest.Row{{int64(1), nil, "a"}}, IDs: []int64{1}}, 0)
	op.IDs = nil
	_, err := w.Shard(tbl, 0).Write(context.Background(), op)
	require.Equal(t, errs.Internal, errs.CodeOf(err))
	w.Close()
}
