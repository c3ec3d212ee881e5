package shardrpc

import (
	"encoding/binary"
	"encoding/json"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/storage/shard"
)

// A write is: table and version of its descriptor · the descriptor in JSON, or nothing,
// when who answers is thought to know it · ops. All ops of a call are of one descriptor.

// Bits of an op.
const (
	opRows = 1 << iota
	opKeys
	opKinds
	opSet
	opIDs
	opWriter
)

func appendWrite(b []byte, ops []*shard.Op, descriptor []byte) []byte {
	t := ops[0].Table
	b = binary.AppendUvarint(b, uint64(t.ID))
	b = binary.AppendVarint(b, t.Version)
	b = appendBytes(b, descriptor)
	b = binary.AppendUvarint(b, uint64(len(ops)))
	for _, op := range ops {
		b = appendOp(b, op)
	}
	return b
}

// sizeOf is about how long ops are on the wire.
func sizeOf(ops []*shard.Op) int {
	n := 64
	for _, op := range ops {
		n += 64 + 10*len(op.IDs) + 2*len(op.Kinds) + len(op.Set)
		for _, c := range op.Columns {
			n += 16 + len(c.Payload)
		}
		for _, r := range op.Rows {
			n += 6 + len(r)
		}
		for _, k := range op.Keys {
			n += 6 + len(k)
		}
		if op.Writer != nil {
			n += len(op.Writer.Scope) + 32
		}
	}
	return n
}

func appendOp(b []byte, op *shard.Op) []byte {
	flags := uint64(0)
	for bit, set := range [...]bool{op.Rows != nil, op.Keys != nil, op.Kinds != nil, op.Set != nil, op.IDs != nil, op.Writer != nil} {
		if set {
			flags |= 1 << bit
		}
	}
	b = binary.AppendUvarint(b, flags)
	b = appendBucket(b, op.Bucket)
	b = binary.AppendUvarint(b, uint64(len(op.Columns)))
	for _, c := range op.Columns {
		b = binary.AppendUvarint(b, uint64(c.Records))
		b = appendBytes(b, c.Payload)
	}
	if op.Rows != nil {
		b = appendRows(b, op.Rows)
	}
	if op.Keys != nil {
		b = appendRows(b, op.Keys)
	}
	if op.Kinds != nil {
		b = binary.AppendUvarint(b, uint64(len(op.Kinds)))
		for _, k := range op.Kinds {
			b = append(b, byte(k))
		}
	}
	if op.Set != nil {
		b = binary.AppendUvarint(b, uint64(len(op.Set)))
		for _, s := range op.Set {
			b = appendBool(b, s)
		}
	}
	if op.IDs != nil {
		b = binary.AppendUvarint(b, uint64(len(op.IDs)))
		for _, id := range op.IDs {
			b = binary.AppendVarint(b, id)
		}
	}
	if w := op.Writer; w != nil {
		b = appendBytes(b, w.Scope)
		b = binary.AppendUvarint(b, w.Epoch)
		b = binary.AppendUvarint(b, w.Seq)
		b = binary.LittleEndian.AppendUint64(b, w.Hash)
	}
	return b
}

// writeHead reads which descriptor ops are of.
func (d *decoder) writeHead() (id millrace.TableID, version int64, descriptor *millrace.Table) {
	id, version = d.table(), d.int()
	text := d.bytes()
	if len(text) == 0 {
		return id, version, nil
	}
	t := &millrace.Table{}
	if json.Unmarshal(text, t) != nil || t.ID != id || t.Version != version || t.Schema == nil {
		d.fail()
		return id, version, nil
	}
	return id, version, t
}

func (d *decoder) ops(t *millrace.Table) []*shard.Op {
	n := d.count(4)
	if n == 0 {
		d.fail()
	}
	out := make([]*shard.Op, 0, n)
	for range n {
		op := &shard.Op{Table: t}
		d.op(op)
		out = append(out, op)
	}
	return out
}

func (d *decoder) op(op *shard.Op) {
	flags := d.within(opWriter<<1 - 1)
	op.Bucket = d.bucket(op.Table.ID)
	if n := d.count(2); n > 0 {
		op.Columns = make([]shard.Encoded, n)
	}
	records := uint64(0)
	for i := range op.Columns {
		op.Columns[i] = shard.Encoded{Records: int(d.within(1 << 31)), Payload: d.bytes()}
		records += uint64(op.Columns[i].Records)
	}
	rows := -1
	same := func(n int) { // lists that are by row are as long as each other
		if rows >= 0 && n != rows {
			d.fail()
		}
		rows = n
	}
	if flags&opRows != 0 {
		op.Rows = d.rows()
		same(len(op.Rows))
	}
	if flags&opKeys != 0 {
		op.Keys = d.rows()
		same(len(op.Keys))
	}
	if flags&opKinds != 0 {
		op.Kinds = make([]shard.OpKind, d.count(1))
		for i := range op.Kinds {
			op.Kinds[i] = shard.OpKind(d.within(uint64(shard.InsertIfAbsent)))
		}
		same(len(op.Kinds))
	}
	if flags&opSet != 0 {
		op.Set = make([]bool, d.count(1))
		for i := range op.Set {
			op.Set[i] = d.bool()
		}
		if len(op.Set) != len(op.Table.Schema.Columns) {
			d.fail()
		}
	}
	if flags&opIDs != 0 {
		op.IDs = make([]int64, d.count(1))
		for i := range op.IDs {
			op.IDs[i] = d.int()
		}
		same(len(op.IDs))
	}
	if flags&opWriter != 0 {
		w := &shard.Sequence{Scope: string(d.bytes()), Epoch: d.uint(), Seq: d.uint()}
		if len(d.b) < 8 {
			d.fail()
			return
		}
		w.Hash, d.b = binary.LittleEndian.Uint64(d.b), d.b[8:]
		op.Writer = w
	}
}

func appendWritten(b []byte, outs []router.Written) []byte {
	b = binary.AppendUvarint(b, uint64(len(outs)))
	for _, o := range outs {
		if o.Err != nil {
			b = appendFailure(append(b, statusError), o.Err)
			continue
		}
		b = appendOffset(append(b, statusOK), o.Result.Start)
		b = appendOffset(b, o.Result.End)
		b = appendBool(b, o.Result.Duplicate)
	}
	return b
}

func (d *decoder) written() []router.Written {
	out := make([]router.Written, d.count(4))
	for i := range out {
		if d.within(statusError) == statusError {
			out[i].Err = d.failure()
			continue
		}
		out[i].Result = shard.Result{Start: d.offset(), End: d.offset(), Duplicate: d.bool()}
	}
	return out
}
