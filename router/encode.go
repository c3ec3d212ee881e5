package router

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/storage/shard"
)

const (
	// Fewer rows than this go to a log table as compact rows, which the owner
	// gathers: a columnar batch of one row is ten times its values.
	columnarRows = 32
	// A stored batch has about this many bytes before compression.
	encodeBatchBytes = 2 << 20

	// MaxRowBytes bounds a row, encoded.
	MaxRowBytes = 1 << 20
	// MaxKeyBytes bounds a primary key, encoded.
	MaxKeyBytes = 4 << 10
)

// encodeOp encodes what a bucket gets of a batch; which bucket is said later.
func encodeOp(req *WriteRequest, s bucketRows) (*shard.Op, error) {
	op := &shard.Op{Table: req.Table}
	if w := req.Writer; w != nil {
		op.Writer = &shard.Sequence{Scope: w.scope(), Epoch: w.Epoch, Seq: w.Seq, Hash: w.Hash}
	}
	if req.Table.Keyed() {
		return op, encodeKeyed(op, req, s)
	}
	return op, encodeLog(op, req, s)
}

func encodeLog(op *shard.Op, req *WriteRequest, s bucketRows) error {
	rec := req.Rows.Record
	if len(s.rows) < columnarRows {
		codec := row.NewCodec(req.Table.Schema)
		op.Rows = make([][]byte, len(s.rows))
		for j, i := range s.rows {
			op.Rows[j] = codec.AppendRow(nil, rec, int(i))
			if err := checkRowSize(req, int(i), len(op.Rows[j])); err != nil {
				return err
			}
		}
		return nil
	}
	taken := row.Take(memory.DefaultAllocator, rec, s.rows)
	defer taken.Release()
	for _, rng := range segment.SplitRows(taken, encodeBatchBytes) {
		// A piece that cannot be cut further and is too large is one large row.
		piece := taken.NewSlice(int64(rng.Start), int64(rng.End))
		payload, err := segment.EncodeColumns(req.Table.Schema, piece, nil, segment.EncodeOptions{})
		piece.Release()
		if err != nil {
			return err
		}
		op.Columns = append(op.Columns, shard.Encoded{Payload: payload, Records: rng.End - rng.Start})
	}
	return nil
}

func encodeKeyed(op *shard.Op, req *WriteRequest, s bucketRows) error {
	e := keyedEncoder{
		req: req, rec: req.Rows.Record, codec: row.NewCodec(req.Table.Schema),
		pk:   columnIndexes(req.Rows.Columns, req.Table.PrimaryKey),
		cols: req.Table.KeyIndexes(columnIDs(req.Rows.Columns)),
	}
	n := len(s.rows)
	op.Keys, op.Rows = make([][]byte, n), make([][]byte, n)
	if req.Partial {
		op.Set = make([]bool, len(req.Table.Schema.Columns))
		for _, c := range e.cols {
			op.Set[c] = true
		}
	}
	for j, i := range s.rows {
		kind := req.kind(int(i))
		if kind != shard.Upsert {
			if op.Kinds == nil {
				op.Kinds = make([]shard.OpKind, n)
			}
			op.Kinds[j] = kind
		}
		var err error
		if op.Keys[j], err = e.key(int(i)); err != nil {
			return err
		}
		if kind != shard.Delete {
			if op.Rows[j], err = e.row(int(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// kind says what row i does in a keyed table.
func (req *WriteRequest) kind(i int) shard.OpKind {
	switch {
	case req.Mode == Delete || req.Rows.Changes != nil && req.Rows.Changes[i] == millrace.Delete:
		return shard.Delete
	case req.IfAbsent:
		return shard.InsertIfAbsent
	default:
		return shard.Upsert
	}
}

type keyedEncoder struct {
	req   *WriteRequest
	rec   arrow.RecordBatch
	codec *row.Codec
	pk    []int // of the record
	cols  []int // the record's columns in the schema
	arena []byte
}

// carve gives what was appended to the arena since at a slice of its own.
func (e *keyedEncoder) carve(at int) []byte { return e.arena[at:len(e.arena):len(e.arena)] }

// Arenas grow as a batch turns out to be large: a batch that is spread over the
// buckets leaves each of them a few rows, which wait in memory for their turn.
const (
	firstArenaBytes = 2 << 10
	mostArenaBytes  = 64 << 10
)

// room makes the arena long enough that what was carved rarely moves.
func (e *keyedEncoder) room() int {
	if size := cap(e.arena); size-len(e.arena) <= size/16 {
		e.arena = make([]byte, 0, min(max(2*size, firstArenaBytes), mostArenaBytes))
	}
	return len(e.arena)
}

func (e *keyedEncoder) key(i int) ([]byte, error) {
	at := e.room()
	e.arena = row.AppendKey(e.arena, e.rec, e.pk, i)
	if n := len(e.arena) - at; n > MaxKeyBytes {
		return nil, e.req.refuse(i, errs.TooLarge, "", "the primary key has %d bytes; at most %d are allowed", n, MaxKeyBytes)
	}
	return e.carve(at), nil
}

func (e *keyedEncoder) row(i int) ([]byte, error) {
	at := e.room()
	if e.req.Partial {
		e.arena = e.codec.AppendPartial(e.arena, e.rec, e.cols, i)
	} else {
		e.arena = e.codec.AppendRow(e.arena, e.rec, i)
	}
	return e.carve(at), checkRowSize(e.req, i, len(e.arena)-at)
}

func checkRowSize(req *WriteRequest, i, n int) error {
	if n > MaxRowBytes {
		return req.refuse(i, errs.TooLarge, "", "the row has %d bytes; at most %d are allowed", n, MaxRowBytes)
	}
	return nil
}

func columnIDs(cols []millrace.Column) []millrace.ColumnID {
	out := make([]millrace.ColumnID, len(cols))
	for i, c := range cols {
		out[i] = c.ID
	}
	return out
}
