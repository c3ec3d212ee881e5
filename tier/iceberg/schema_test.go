package iceberg

import (
	"slices"
	"strings"
	"testing"

	"github.com/apache/iceberg-go/table"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
)

// TestSchemaEvolution changes a table in every way that ALTER has, writes a row with each
// version of the schema, and reads all of them with iceberg-go's reader, by the newest
// schema and by that of each snapshot.
func TestSchemaEvolution(t *testing.T) {
	w := newWorld(t)
	d := testTable(1, []string{"k"}, nil, 1, "k BIGINT NOT NULL", "gone STRING", "i INT", "f FLOAT", "d DECIMAL(9,2)", "r ROW<a INT, b STRING>", "l ARRAY<ROW<x INT>>")
	var ids []int64
	commit := func(line string) {
		t.Helper()
		s, err := w.append(w.f, d, lake.Slice{Bucket: 0}, at(d, int64(len(ids)+1)), line)
		require.NoError(t, err)
		require.Equal(t, d.Schema.ID, s.Schema())
		ids = append(ids, s.ID())
	}
	alter := func(change func(s *millrace.Schema, next *millrace.ColumnID)) {
		next := *d
		next.Schema = &millrace.Schema{ID: d.Schema.ID + 1, Columns: slices.Clone(d.Schema.Columns)}
		change(next.Schema, &next.LastColumnID)
		d = &next
	}
	commit(`{"k":1,"gone":"g","i":1,"f":0.5,"d":"1.25","r":{"a":1,"b":"b"},"l":[{"x":1}]}`)

	alter(func(s *millrace.Schema, _ *millrace.ColumnID) { // drop
		s.Columns = slices.DeleteFunc(s.Columns, func(c millrace.Column) bool { return c.Name == "gone" })
	})
	commit(`{"k":2,"i":2,"f":0.5,"d":"2.25","r":{"a":2,"b":"b"},"l":[{"x":2}]}`)

	alter(func(s *millrace.Schema, last *millrace.ColumnID) { // add in front, under the name of the one that is gone
		*last++
		s.Columns = slices.Insert(s.Columns, 0, millrace.Column{ID: *last, Name: "gone", Type: mustType("INT"), Nullable: true})
	})
	commit(`{"k":3,"gone":3,"i":3,"f":0.5,"d":"3.25","r":{"a":3,"b":"b"},"l":[{"x":3}]}`)

	alter(func(s *millrace.Schema, _ *millrace.ColumnID) { // widen and rename
		for i, typ := range map[string]string{"i": "BIGINT", "f": "DOUBLE", "d": "DECIMAL(18,2)"} {
			n := s.Index(i)
			s.Columns[n].Type = mustType(typ)
			s.Columns[n].Name = strings.ToUpper(i)
		}
	})
	commit(`{"k":4,"gone":4,"I":4,"F":0.1,"D":"4.25","r":{"a":4,"b":"b"},"l":[{"x":4}]}`)

	alter(func(s *millrace.Schema, last *millrace.ColumnID) { // nested: add, rename, widen, drop
		r := &s.Columns[s.Index("r")].Type
		r.Children = slices.Clone(r.Children[:1])
		r.Children[0].Name, r.Children[0].Type = "aa", mustType("BIGINT")
		*last++
		r.Children = append(r.Children, millrace.Column{ID: *last, Name: "b", Type: mustType("DATE"), Nullable: true})
		l := &s.Columns[s.Index("l")].Type
		l.Children = slices.Clone(l.Children)
		e := &l.Children[0].Type
		e.Children = slices.Clone(e.Children)
		e.Children[0].Type = mustType("BIGINT")
		s.Columns[s.Index("k")].Comment = "another"
	})
	commit(`{"k":5,"gone":5,"I":5,"F":0.1,"D":"5.25","r":{"aa":5,"b":"2026-08-26"},"l":[{"x":5}]}`)

	require.Equal(t, []string{
		`{"D":"1.25","F":0.5,"I":1,"gone":null,"k":1,"l":[{"x":1}],"r":{"aa":1,"b":null}}`,
		`{"D":"2.25","F":0.5,"I":2,"gone":null,"k":2,"l":[{"x":2}],"r":{"aa":2,"b":null}}`,
		`{"D":"3.25","F":0.5,"I":3,"gone":3,"k":3,"l":[{"x":3}],"r":{"aa":3,"b":null}}`,
		`{"D":"4.25","F":0.1,"I":4,"gone":4,"k":4,"l":[{"x":4}],"r":{"aa":4,"b":null}}`,
		`{"D":"5.25","F":0.1,"I":5,"gone":5,"k":5,"l":[{"x":5}],"r":{"aa":5,"b":"2026-08-26"}}`,
	}, w.scan(d))
	require.Equal(t, []string{`{"d":"1.25","f":0.5,"gone":"g","i":1,"k":1,"l":[{"x":1}],"r":{"a":1,"b":"b"}}`},
		w.scan(d, table.WithSnapshotID(ids[0])))

	lt, err := w.f.open(t.Context(), d)
	require.NoError(t, err)
	v, err := lt.load(t.Context())
	require.NoError(t, err)
	require.Len(t, v.meta.Schemas(), 5)
	k, _ := v.meta.CurrentSchema().FindFieldByName("k")
	require.Equal(t, 1, k.ID)
	require.Equal(t, "another", k.Doc)
	require.Equal(t, []int{1}, v.meta.CurrentSchema().IdentifierFieldIDs)

	old := *d
	old.Schema = &millrace.Schema{ID: d.Schema.ID - 1, Columns: d.Schema.Columns}
	_, err = lt.begin(t.Context(), &old)
	require.True(t, errs.Is(err, errs.SchemaChanged), err)
}

// TestSystemColumns writes a table with system columns, and one that gets them later.
func TestSystemColumns(t *testing.T) {
	w := newWorld(t)
	d := testTable(1, nil, nil, 2, "k BIGINT NOT NULL")
	_, err := w.append(w.f, d, lake.Slice{Bucket: lake.NoBucket}, at(d, 1, 0), `{"k":1}`)
	require.NoError(t, err)
	opts := *d.Options.Lake
	opts.SystemColumns = true
	d.Options.Lake = &opts
	lt, err := w.f.open(t.Context(), d)
	require.NoError(t, err)
	r, err := lt.begin(t.Context(), d)
	require.NoError(t, err)
	a, err := r.Append(t.Context(), lake.Slice{Bucket: lake.NoBucket})
	require.NoError(t, err)
	b := batch(t, lakeColumns(d), `{"k":2,"__bucket":1,"__offset":0,"__timestamp":"2026-08-26T12:34:56.123456Z"}`)
	defer b.Release()
	require.NoError(t, a.Write(b))
	require.NoError(t, a.Close())
	_, err = r.commit(t.Context(), at(d, 1, 1))
	require.NoError(t, err)
	require.Equal(t, []string{
		`{"__bucket":1,"__offset":0,"__timestamp":"2026-08-26T12:34:56.123456Z","k":2}`,
		`{"__bucket":null,"__offset":null,"__timestamp":null,"k":1}`,
	}, w.scan(d))
	// Columns that are added then have ids of ours.
	addColumn(d, "s STRING")
	d.Schema.ID = 2
	r, err = lt.begin(t.Context(), d)
	require.NoError(t, err)
	require.EqualValues(t, 2, r.schema.Field(1).ID)
	_, err = r.commit(t.Context(), at(d, 1, 1))
	require.NoError(t, err)
}
