package shard

import (
	"slices"

	millrace "github.com/millrace/millrace"
)

// OpKind says what a row of an Op does.
type OpKind uint8

// The kinds of rows.
const (
	Upsert OpKind = iota
	Delete
	// InsertIfAbsent changes nothing when the key is there, whatever the merge engine.
	InsertIfAbsent
)

const (
	// MaxRowBytes bounds a compact row, also one that a partial update makes: a -U and
	// its +U must fit into one payload.
	MaxRowBytes = 1 << 20
	// MaxOpBytes bounds what one op adds to the log, since it is one entry there: with
	// the rows before and after, an update takes more than its rows.
	MaxOpBytes = 224 << 20
)

// Op is one write to one bucket: the rows of a batch that belong there, parsed,
// checked and encoded by the front. It is atomic. The shard keeps the slices
// until the answer, then lets go of them.
//
// A log table's Op has Columns, or Rows alone (few rows: a columnar batch of one
// row is ten times its values). A keyed table's has Keys and Rows.
type Op struct {
	Bucket millrace.BucketID
	// Table is the descriptor the rows were encoded with.
	Table *millrace.Table

	// Columns are encoded columnar payloads, in order, with their record counts.
	Columns []Encoded

	// Rows are compact rows of Table.Schema; nil for a whole delete.
	Rows [][]byte
	// Keys are the primary keys, by row.AppendKey.
	Keys [][]byte
	// Kinds are by row; nil when all are Upsert.
	Kinds []OpKind
	// Set says for each column of the schema whether the rows carry it; nil when
	// the rows are whole. With Delete, the set columns become NULL.
	Set []bool
	// IDs are by row what the table's auto-increment column becomes when the row turns
	// out to be an insert; an update keeps the value. What the rows carry in that column
	// does not count. Nil when the table has none, or all rows are deletes.
	IDs []int64

	// Writer numbers the batch; nil when it is not numbered.
	Writer *Sequence

	// Line is the stream that the op is of, nil when it is of none, and Place its place
	// there, from 1. The parts of a batch share a place.
	Line  *Line
	Place uint64
}

// Encoded is an encoded payload and its record count.
type Encoded struct {
	Payload []byte
	Records int
}

// Result says where a write's records are: [Start, End), empty when the write
// changed nothing.
type Result struct {
	Start, End millrace.Offset
	// Duplicate says that the batch had been taken before; it was not written
	// again. Start and End are NoOffset when the first offsets are forgotten.
	Duplicate bool
}

// keyedRowBytes is about what a keyed row takes besides its bytes while it is
// merged: slices, the overlay's entry, the state's batch.
const keyedRowBytes = 200

// bytes is about what the op holds in memory.
func (o *Op) bytes() int64 {
	n := 256
	for _, c := range o.Columns {
		n += len(c.Payload)
	}
	for _, r := range o.Rows {
		n += len(r) + 48
	}
	for _, k := range o.Keys {
		n += len(k) + keyedRowBytes
	}
	n += 8 * len(o.IDs)
	return int64(n)
}

func (o *Op) kind(i int) OpKind {
	if o.Kinds == nil {
		return Upsert
	}
	return o.Kinds[i]
}

// has says whether a row of the op is of this kind.
func (o *Op) has(k OpKind) bool {
	if o.Kinds == nil {
		return k == Upsert
	}
	return slices.Contains(o.Kinds, k)
}
