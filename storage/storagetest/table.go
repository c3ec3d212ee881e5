package storagetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/storage/shard"
)

// Table is a table of the model and its descriptor.
type Table struct {
	*millrace.Table
	Partition millrace.PartitionID // of which this is the model; 0 when the table has none
	Keyed     bool
	pk        []int
}

// BucketID is the id of bucket n.
func (t *Table) BucketID(n uint16) millrace.BucketID {
	return millrace.BucketID{Table: t.ID, Partition: t.Partition, Bucket: n}
}

// InPartition is the same table, modelled in one of its partitions.
func (t *Table) InPartition(id millrace.PartitionID) *Table {
	p := *t
	p.Partition = id
	return &p
}

// NewTable makes a descriptor: columns as "name TYPE" or "name TYPE NOT NULL", the
// first keys of which are the primary key. Buckets lie on shards in turn.
func NewTable(id millrace.TableID, buckets, shards, keys int, columns ...string) *Table {
	d := &millrace.Table{
		ID: id, Path: millrace.TablePath{Database: "d", Table: fmt.Sprintf("t%d", id)},
		Kind: millrace.LogTable, Schema: &millrace.Schema{ID: 1}, Buckets: buckets,
		Options: millrace.TableOptions{LogTTL: -1},
	}
	for i, c := range columns {
		name, typ, _ := strings.Cut(c, " ")
		typ, notNull := strings.CutSuffix(typ, " NOT NULL")
		dt, err := millrace.ParseType(typ)
		if err != nil {
			panic(err)
		}
		d.Schema.Columns = append(d.Schema.Columns, millrace.Column{ID: millrace.ColumnID(i + 1), Name: name, Type: dt, Nullable: !notNull})
	}
	t := &Table{Table: d, Keyed: keys > 0}
	for i := range keys {
		t.pk = append(t.pk, i)
		d.Kind = millrace.KeyedTable
		d.PrimaryKey = append(d.PrimaryKey, millrace.ColumnID(i+1))
		d.BucketKey = d.PrimaryKey
	}
	for i := range buckets {
		d.Shards = append(d.Shards, millrace.ShardID((int(id)+i)%shards))
	}
	return t
}

// Key is the primary key of a row as text.
func (t *Table) Key(r Row) string {
	var b strings.Builder
	for _, i := range t.pk {
		fmt.Fprintf(&b, "%v\x00", r[i])
	}
	return b.String()
}

func (t *Table) inKey(col int) bool { return slices.Contains(t.pk, col) }

// Record makes a record of the given columns of rows. The caller releases it.
func (t *Table) Record(rows []Row, cols []int) arrow.RecordBatch {
	want := make([]millrace.Column, len(cols))
	for j, c := range cols {
		want[j] = t.Schema.Columns[c]
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(want))
	defer b.Release()
	for _, r := range rows {
		for j, c := range cols {
			appendValue(b.Field(j), r[c])
		}
	}
	return b.NewRecordBatch()
}

// Columns are the positions of all columns.
func (t *Table) Columns() []int {
	out := make([]int, len(t.Schema.Columns))
	for i := range out {
		out[i] = i
	}
	return out
}

// StateKey is the primary key of a row as the store has it.
func (t *Table) StateKey(r Row) []byte {
	rec := t.Record([]Row{r}, t.pk)
	defer rec.Release()
	return row.AppendKey(nil, rec, t.Columns()[:len(t.pk)], 0)
}

// Op encodes a write as the front does: rows of a log table in columnar payloads
// of pieceBytes each, or as compact rows when that is 0.
func (t *Table) Op(w *Write, pieceBytes int) *shard.Op {
	op := &shard.Op{Bucket: t.BucketID(w.Bucket), Table: t.Table, Set: w.Set, IDs: w.IDs}
	if s := w.Writer; s != nil {
		op.Writer = &shard.Sequence{Scope: s.Writer, Epoch: s.Epoch, Seq: s.Seq, Hash: s.Hash}
	}
	rec := t.Record(w.Rows, t.Columns())
	defer rec.Release()
	if !t.Keyed && pieceBytes > 0 {
		for _, rng := range segment.SplitRows(rec, pieceBytes) {
			piece := rec.NewSlice(int64(rng.Start), int64(rng.End))
			payload, err := segment.AppendColumns(nil, t.Schema, piece, nil, segment.EncodeOptions{})
			piece.Release()
			if err != nil {
				panic(err)
			}
			op.Columns = append(op.Columns, shard.Encoded{Payload: payload, Records: rng.End - rng.Start})
		}
		return op
	}
	codec := row.NewCodec(t.Schema)
	op.Rows = make([][]byte, len(w.Rows))
	if t.Keyed {
		op.Keys = make([][]byte, len(w.Rows))
	}
	cols := t.Columns()
	if w.Set != nil {
		cols = nil
		for i, on := range w.Set {
			if on {
				cols = append(cols, i)
			}
		}
	}
	part := t.Record(w.Rows, cols)
	defer part.Release()
	for i := range w.Rows {
		if t.Keyed {
			op.Keys[i] = row.AppendKey(nil, rec, t.pk, i)
		}
		if kind := w.kind(i); kind != shard.Upsert {
			if op.Kinds == nil {
				op.Kinds = make([]shard.OpKind, len(w.Rows))
			}
			op.Kinds[i] = kind
			if kind == shard.Delete {
				continue
			}
		}
		op.Rows[i] = codec.AppendPartial(nil, part, cols, i)
	}
	return op
}

func (w *Write) kind(i int) shard.OpKind {
	switch {
	case w.Deletes != nil && w.Deletes[i]:
		return shard.Delete
	case w.Absent != nil && w.Absent[i]:
		return shard.InsertIfAbsent
	}
	return shard.Upsert
}
