package segment

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

func compactRows(s *millrace.Schema, rec arrow.RecordBatch) [][]byte {
	c := row.NewCodec(s)
	rows := make([][]byte, rec.NumRows())
	for i := range rows {
		rows[i] = c.AppendRow(nil, rec, i)
	}
	return rows
}

func rowPayload(s *millrace.Schema, rec arrow.RecordBatch, changes []millrace.ChangeType) []byte {
	return AppendRows([]byte("before!"), s.ID, changes, compactRows(s, rec))[7:]
}

// Shows that row payloads give the rows, records and messages that the columns of
// the same rows give, with change types, and are read by a newer schema.
func TestRowPayloads(t *testing.T) {
	s := makeSchema(1, allTypes...)
	for _, rows := range []int{0, 1, 3, 100} {
		rng := newRand(uint64(rows))
		rec := randomRecord(rng, s, rows, 2)
		for _, changes := range [][]millrace.ChangeType{nil, randomChanges(rng, rows)} {
			b := rowPayload(s, rec, changes)
			src := &countingReader{b: b}
			p, err := Open(src, 0, int64(len(b)))
			require.NoError(t, err)
			require.Equal(t, Rows, p.Encoding())
			require.Equal(t, None, p.Codec())
			require.Equal(t, rows, p.Rows())
			want := []millrace.Column{s.Columns[20], s.Columns[3], s.Columns[27]}
			got, err := p.Record(memory.DefaultAllocator, only(s), want)
			require.NoError(t, err)
			requireSame(t, array.NewRecordBatch(row.ArrowSchema(want), []arrow.Array{rec.Column(20), rec.Column(3), rec.Column(27)}, int64(rows)), got)
			for _, target := range []Codec{Stored, LZ4} {
				ex, fields := extras(rows, 0)
				m, err := p.Message(only(s), want, ex, target)
				require.NoError(t, err)
				schema := arrow.NewSchema(append(fields, row.ArrowSchema(want).Fields()...), nil)
				requireSame(t, array.NewRecordBatch(schema, append([]arrow.Array{ex[0].Array}, got.Columns()...), int64(rows)), stock(t, schema, m)[0])
			}
			cs, err := p.Changes()
			require.NoError(t, err)
			if p.HasChanges() {
				require.Equal(t, changes, cs)
			} else {
				require.Nil(t, cs)
			}
			_, ok := p.Stats(1)
			require.False(t, ok)
			got.Release()
		}
		rec.Release()
	}
}

// Shows that one row takes little more than itself.
func TestOneRowIsSmall(t *testing.T) {
	s := makeSchema(1, "BIGINT", "STRING", "TIMESTAMP(6)")
	rec := randomRecord(newRand(1), s, 1, 0)
	defer rec.Release()
	rows := compactRows(s, rec)
	b := AppendRows(nil, 1, []millrace.ChangeType{millrace.UpdateAfter}, rows)
	require.LessOrEqual(t, len(b), len(rows[0])+45)
}

// Shows that CompactRows gives the rows as they were, and that columns have none.
func TestCompactRows(t *testing.T) {
	rows := [][]byte{[]byte("one"), {}, []byte("three")}
	p, err := OpenBytes(AppendRows(nil, 1, nil, rows))
	require.NoError(t, err)
	got, err := p.CompactRows()
	require.NoError(t, err)
	require.Equal(t, rows, got)
	s := makeSchema(1, "INT")
	p, err = OpenBytes(encoded(t, s, randomRecord(newRand(1), s, 1, 0), nil, None))
	require.NoError(t, err)
	_, err = p.CompactRows()
	require.True(t, errs.Is(err, errs.CorruptData), "%v", err)
}

// Shows that merging parts of both encodings, of two schema versions, with and
// without change types, gives what the parts give one after the other.
func TestMergeIsConcatenation(t *testing.T) {
	old := makeSchema(1, "INT", "STRING", "ARRAY<ROW<a INT, b STRING>>", "DECIMAL(5,1)")
	now := makeSchema(2, "BIGINT", "STRING", "ARRAY<ROW<a INT, b STRING>>", "DECIMAL(9,1)", "MAP<STRING, DATE>", "BOOLEAN")
	schemas := only(old, now)
	rng := newRand(77)
	for trial := range 60 {
		var parts []*Payload
		var records []arrow.RecordBatch
		var changes []millrace.ChangeType
		for range trial % 7 {
			s := []*millrace.Schema{old, now}[rng.IntN(2)]
			rec := randomRecord(rng, s, rng.IntN(40), 2)
			var cs []millrace.ChangeType
			if rng.IntN(3) == 0 {
				cs = randomChanges(rng, int(rec.NumRows()))
			}
			var b []byte
			if rng.IntN(2) == 0 {
				b = encoded(t, s, rec, cs, codecs[rng.IntN(3)])
			} else {
				b = rowPayload(s, rec, cs)
			}
			p, err := OpenBytes(b)
			require.NoError(t, err)
			parts = append(parts, p)
			got, err := p.Record(memory.DefaultAllocator, schemas, now.Columns)
			require.NoError(t, err)
			records = append(records, got)
			if cs == nil {
				cs = make([]millrace.ChangeType, rec.NumRows())
			}
			changes = append(changes, cs...)
		}
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		b, err := Merge([]byte("before!"), mem, schemas, now, parts, EncodeOptions{})
		require.NoError(t, err)
		mem.AssertSize(t, 0)
		require.Equal(t, "before!", string(b[:7]))
		p, err := OpenBytes(b[7:])
		require.NoError(t, err)
		require.Equal(t, now.ID, p.SchemaID())
		require.Equal(t, len(changes), p.Rows())
		got, err := p.Record(memory.DefaultAllocator, schemas, now.Columns)
		require.NoError(t, err)
		at := int64(0)
		for _, r := range records {
			part := got.NewSlice(at, at+r.NumRows())
			requireSame(t, r, part)
			part.Release()
			at += r.NumRows()
		}
		cs, err := p.Changes()
		require.NoError(t, err)
		if p.HasChanges() {
			require.Equal(t, changes, cs)
		} else {
			require.False(t, needsChanges(changes))
		}
	}
}

// Shows that a merge that fails gives nothing and leaks nothing.
func TestMergeFails(t *testing.T) {
	s := makeSchema(1, "BIGINT", "STRING")
	rec := randomRecord(newRand(1), s, 10, 0)
	defer rec.Release()
	good, err := OpenBytes(encoded(t, s, rec, nil, None))
	require.NoError(t, err)
	rows, err := OpenBytes(rowPayload(s, rec, nil))
	require.NoError(t, err)
	broken := encoded(t, s, rec, nil, None)
	broken[len(broken)-1] ^= 1
	bad, err := OpenBytes(broken)
	require.NoError(t, err)
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	for _, parts := range [][]*Payload{{good, bad}, {rows, bad}, {good, rows, bad, good}} {
		b, err := Merge([]byte("x"), mem, only(s), s, parts, EncodeOptions{})
		require.True(t, errs.Is(err, errs.CorruptData), "%v", err)
		require.Equal(t, "x", string(b))
		mem.AssertSize(t, 0)
	}
}
