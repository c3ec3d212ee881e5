package router

import (
	"cmp"
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/row"
)

// checkInsert says whether rows of keys alone can be inserted: every other column is
// NULL then, or numbered by the server.
func checkInsert(t *millrace.Table) error {
	return checkWrite(insertRequest(t, row.Rows{Columns: t.Columns(t.PrimaryKey)}, nil))
}

// insertRequest is the write that inserts rows of keys where there are none.
func insertRequest(t *millrace.Table, keys row.Rows, w *WriterSequence) *WriteRequest {
	return &WriteRequest{Table: t, Mode: Upsert, Rows: keys, Partial: true, IfAbsent: true, Writer: w}
}

// inSchemaOrder is a record of the primary key's columns as a write has them.
func inSchemaOrder(t *millrace.Table, keys arrow.RecordBatch) row.Rows {
	cols := t.Columns(t.PrimaryKey)
	order := indexes(len(cols))
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Compare(t.Schema.IndexID(cols[a].ID), t.Schema.IndexID(cols[b].ID))
	})
	out := row.Rows{Record: row.Project(keys, order)}
	for _, i := range order {
		out.Columns = append(out.Columns, cols[i])
	}
	return out
}

// insertAbsent inserts a row for each key that has none, and reads the rows of these
// keys again. Of several who do this for one key at a time, one inserts and all get
// the same row; what is deleted in between stays away.
func (k *keyReader) insertAbsent(ctx context.Context, keys arrow.RecordBatch, rows [][]byte, w *WriterSequence) error {
	var absent []int32
	for i, r := range rows {
		if r == nil {
			absent = append(absent, int32(i))
		}
	}
	if len(absent) == 0 {
		return nil
	}
	taken := row.Take(memory.DefaultAllocator, keys, absent)
	defer taken.Release()
	insert := inSchemaOrder(k.t, taken)
	defer insert.Release()
	if _, err := k.r.Write(ctx, insertRequest(k.t, insert, w)); err != nil {
		return err
	}
	now, err := k.read(ctx, taken)
	if err != nil {
		return err
	}
	for j, i := range absent {
		rows[i] = now[j]
	}
	return nil
}
