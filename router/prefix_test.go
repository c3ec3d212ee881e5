package router_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/row/jsonrow"
)

// prefixRow is a row of the tables that prefixes are tried on.
type prefixRow struct {
	a  string
	dt int
	b  int
	c  string
}

func (r prefixRow) String() string {
	return fmt.Sprintf(`{"a":%s,"dt":%d,"b":%d,"c":%q}`, r.by("a"), r.dt, r.b, r.c)
}

// by is a row's value of a column, as JSON.
func (r prefixRow) by(column string) string {
	return map[string]string{"a": strings.ReplaceAll(`"`+r.a+`"`, "\x00", `\u0000`), "dt": fmt.Sprint(r.dt), "b": fmt.Sprint(r.b), "c": fmt.Sprintf("%q", r.c)}[column]
}

func (r prefixRow) compare(o prefixRow, key []string) int {
	for _, k := range key {
		by := map[string]int{"a": cmp.Compare(r.a, o.a), "dt": cmp.Compare(r.dt, o.dt), "b": cmp.Compare(r.b, o.b), "c": cmp.Compare(r.c, o.c)}
		if by[k] != 0 {
			return by[k]
		}
	}
	return 0
}

// pages reads all pages of a prefix.
func (f *parted) pages(t *millrace.Table, prefix row.Rows, size int) []string {
	out, token := []string{}, ""
	for {
		p, err := f.r.PrefixPage(context.Background(), t, &router.PrefixRequest{Prefix: prefix, PageSize: size, PageToken: token})
		require.NoError(f.t, err)
		rd := f.r.Open(p)
		for {
			c, err := rd.Next(context.Background(), time.Minute)
			if c == nil {
				require.True(f.t, rd.Done(), "%v", err)
				break
			}
			out = append(out, f.chunk(rd, c)...)
		}
		token, err = rd.NextPage(context.Background())
		require.NoError(f.t, err)
		require.NoError(f.t, rd.Close())
		if token == "" {
			return out
		}
	}
}

// Shows that a prefix gives exactly the rows whose keys begin with it, in the order of
// their keys, wherever the partition column stands in the key, in pages and many at
// once; and that what is no prefix of one bucket is refused with what it lacks.
func TestPrefixes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n, shape := range []struct {
		key, partition, bucket string
		good                   []string          // columns of prefixes
		bad                    map[string]string // of others, and what they lack
	}{
		{"a,b,c", "", "a", []string{"a", "a,b", "a,b,c"}, map[string]string{"b": "a", "": "a", "a,c": "b", "b,c": "a"}},
		{"a,b,c", "", "a,b", []string{"a,b", "a,b,c"}, map[string]string{"a": "b", "a,c": "b", "c": "a, b"}},
		{"a,b,c", "", "b", []string{"a,b", "a,b,c"}, map[string]string{"b": "a", "a": "b"}},
		{"a,b,c", "", "", []string{"a,b,c"}, map[string]string{"a,b": "c"}},
		{"dt,a,b", "dt", "a", []string{"dt,a", "dt,a,b"}, map[string]string{"a": "dt", "dt": "a", "dt,b": "a", "a,b": "dt"}},
		{"a,dt,b", "dt", "a", []string{"dt,a", "dt,a,b"}, map[string]string{"a": "dt", "dt": "a", "b,dt": "a"}},
		{"a,b,dt", "dt", "a", []string{"a,dt", "a,b,dt"}, map[string]string{"a,b": "dt", "b": "a, dt"}},
	} {
		f := newParted(t)
		key := strings.Split(shape.key, ",")
		tbl := f.table(fmt.Sprint("t", n), "a STRING, dt INT, b BIGINT, c STRING", func(s *catalog.Spec) {
			s.PrimaryKey, s.Buckets = key, new(3)
			if shape.bucket != "" {
				s.BucketKey = strings.Split(shape.bucket, ",")
			}
			if shape.partition != "" {
				s.PartitionBy = []string{shape.partition}
			}
		})
		var all []prefixRow
		var text strings.Builder
		for range 400 {
			r := prefixRow{[]string{"", "x", "x\x00", "xy", "y"}[rng.IntN(5)], rng.IntN(3) - 1, rng.IntN(5) - 2, []string{"", "x", "xx"}[rng.IntN(3)]}
			text.WriteString(r.String())
			all = slices.DeleteFunc(all, func(o prefixRow) bool { return r.compare(o, key) == 0 })
			all = append(all, r)
		}
		f.must(tbl, router.Upsert, text.String())
		slices.SortFunc(all, func(x, y prefixRow) int { return x.compare(y, key) })

		for _, given := range shape.good {
			columns := strings.Split(given, ",")
			var prefixes []string
			var want []string
			for range 20 {
				r := all[rng.IntN(len(all))]
				if rng.IntN(5) == 0 {
					r.dt = 77 // a partition or row that is not there
				}
				var has []string
				for _, c := range columns {
					has = append(has, fmt.Sprintf("%q:%s", c, r.by(c)))
				}
				one := "{" + strings.Join(has, ",") + "}"
				rows := []string{}
				for _, o := range all {
					if !slices.ContainsFunc(columns, func(c string) bool { return o.by(c) != r.by(c) }) {
						rows = append(rows, o.String())
						want = append(want, fmt.Sprint(len(prefixes), " ", o))
					}
				}
				prefixes = append(prefixes, one)
				rec := f.rows(tbl, one, jsonrow.Options{}, columns...)
				require.Equal(t, rows, f.pages(tbl, rec, 1+rng.IntN(8)), "%s of %+v", one, shape)
				rec.Release()
			}
			recs := f.rows(tbl, strings.Join(prefixes, ""), jsonrow.Options{}, columns...)
			l, err := f.r.OpenPrefixLookups(t.Context(), tbl, recs.Columns, tbl.Schema.Columns, -1, 1<<20)
			require.NoError(t, err)
			for range 2 {
				res, err := l.Next(context.Background(), recs.Record)
				require.NoError(t, err)
				var got []string
				for i, index := range res.Index {
					got = append(got, fmt.Sprint(index, " ", string(jsonrow.AppendObject(nil, tbl.Schema.Columns, res.Record, i, jsonrow.EncodeOptions{}))))
				}
				require.Equal(t, want, got)
				res.Record.Release()
			}
			recs.Release()
		}
		for given, lacks := range shape.bad {
			rec := row.Rows{Columns: f.columns(tbl, given)}
			_, err := f.r.PrefixPage(context.Background(), tbl, &router.PrefixRequest{Prefix: rec, PageSize: 1})
			f.refused(errs.PrefixTooShort, err)
			require.Contains(t, err.Error(), "the prefix lacks "+lacks+":", "%s of %+v", given, shape)
			_, err = f.r.OpenPrefixLookups(t.Context(), tbl, rec.Columns, tbl.Schema.Columns, -1, 1<<20)
			f.refused(errs.PrefixTooShort, err)
		}
	}
}

func (f *parted) columns(t *millrace.Table, names string) []millrace.Column {
	var out []millrace.Column
	for n := range strings.FieldsFuncSeq(names, func(r rune) bool { return r == ',' }) {
		out = append(out, t.Schema.Columns[t.Schema.Index(n)])
	}
	return out
}
