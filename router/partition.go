package router

import (
	"context"
	"errors"

	"github.com/apache/arrow-go/v18/arrow"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row/jsonrow"
)

// target is the partition that rows of a write or lookup belong to.
type target struct {
	p      *millrace.Partition // nil while there is none
	values []string            // texts, by partition column
	row    int32               // a row with these values
}

// name is the partition's name; "" on a table without partitions.
func (g *target) name() string {
	if g == nil || g.p == nil {
		return ""
	}
	return g.p.Name
}

// targets finds the partition of each group of a record's rows; nil where there is
// none. cols are the partition columns in the record.
func (r *Router) targets(ctx context.Context, t *millrace.Table, rec arrow.RecordBatch, cols []int, first []int32) ([]target, error) {
	if len(first) > millrace.MaxPartitions {
		return nil, errs.New(errs.InvalidValue, "the rows are of %d partitions; a table has at most %d", len(first), millrace.MaxPartitions)
	}
	out := make([]target, len(first))
	types, names := t.Columns(t.PartitionBy), t.Names(t.PartitionBy)
	var text []byte
	for g, row := range first {
		values := make([]string, len(cols))
		for i, c := range cols {
			text = jsonrow.AppendPartitionText(text[:0], types[i].Type, rec.Column(c), int(row))
			values[i] = string(text)
		}
		out[g] = target{values: values, row: row}
		p, err := r.o.Catalog.Partition(ctx, t.ID, millrace.PartitionName(names, values))
		switch {
		case err == nil:
			out[g].p = p
		case !errs.Is(err, errs.PartitionNotFound) && !errs.Is(err, errs.ValueOutOfRange):
			return nil, err
		}
	}
	return out, nil
}

// placeRows gives the rows of a write their partitions. Partitions that have to be
// made are made by makePartitions, when nothing else can go wrong. Rows that delete
// from a partition that does not exist are left out: what they delete is not there.
func (r *Router) placeRows(ctx context.Context, req *WriteRequest, rows []int32) ([]int32, groups, []target, error) {
	t := req.Table
	cols := columnIndexes(req.Rows.Columns, t.PartitionBy)
	for i, c := range cols {
		if err := notNull(req, c, t.PartitionBy[i]); err != nil {
			return nil, groups{}, nil, err
		}
	}
	gs := groupRows(req.Rows.Record, cols)
	targets, err := r.targets(ctx, t, req.Rows.Record, cols, gs.first)
	if err != nil {
		return nil, groups{}, nil, err
	}
	makes := make([]bool, len(targets)) // there is none, and a row needs it
	kept := rows[:0]
	for _, i := range rows {
		g := gs.of[i]
		if targets[g].p == nil {
			if req.deletes(i) {
				continue
			}
			makes[g] = true
		}
		kept = append(kept, i)
	}
	missing := 0
	for g := range targets {
		if err := checkTarget(req, &targets[g], makes[g]); err != nil {
			return nil, groups{}, nil, err
		}
		if makes[g] {
			missing++
		}
	}
	if missing > 1 { // one alone is counted where it is made
		if err := r.roomFor(ctx, t, missing); err != nil {
			return nil, groups{}, nil, err
		}
	}
	return kept, gs, targets, nil
}

// roomFor says whether a table may have so many more partitions, so that a batch with
// too many makes none.
func (r *Router) roomFor(ctx context.Context, t *millrace.Table, more int) error {
	ps, err := r.o.Catalog.Partitions(ctx, t.ID)
	if err == nil && len(ps)+more > millrace.MaxPartitions {
		err = errs.New(errs.InvalidValue, "table %s has %d partitions and the rows need %d more; a table has at most %d: drop some first", t.Path, len(ps), more, millrace.MaxPartitions)
	}
	return err
}

// deletes says whether row i of the request is a delete.
func (req *WriteRequest) deletes(i int32) bool {
	return req.Mode == Delete || req.Rows.Changes != nil && req.Rows.Changes[i] == millrace.Delete
}

func notNull(req *WriteRequest, col int, id millrace.ColumnID) error {
	if col < 0 {
		return errs.New(errs.MissingColumn, "the write does not name partition column %q of table %s", req.Table.Columns([]millrace.ColumnID{id})[0].Name, req.Table.Path)
	}
	arr := req.Rows.Record.Column(col)
	for i := range arr.Len() {
		if arr.NullN() == 0 {
			break
		}
		if arr.IsNull(i) {
			name := req.Rows.Columns[col].Name
			return errs.Row(errs.NullNotAllowed, req.FirstRow+int64(i), name, "partition column %q is NULL", name)
		}
	}
	return nil
}

// checkTarget refuses what goes to a partition that has ended, or that does not exist
// and is not made on demand.
func checkTarget(req *WriteRequest, g *target, makes bool) error {
	t := req.Table
	name := millrace.PartitionName(t.Names(t.PartitionBy), g.values)
	switch {
	case g.p != nil && g.p.State != millrace.PartitionOpen:
		return errs.Row(errs.PartitionExpired, req.FirstRow+int64(g.row), "", "partition %s has ended and takes no more writes", name)
	case makes && t.Options.FixedPartitions:
		return errs.Row(errs.PartitionNotFound, req.FirstRow+int64(g.row), "", "table %s has no partition %s, and its property table.partition.dynamic is false: create the partition first", t.Path, name)
	}
	return nil
}

// makePartitions makes the partitions that the parts of a write need. Others may make
// them at the same time: there is one of each.
func (r *Router) makePartitions(ctx context.Context, req *WriteRequest, parts []bucketRows) error {
	for i := range parts {
		g := parts[i].target
		if g == nil || g.p != nil {
			continue
		}
		p, _, err := r.o.Catalog.EnsurePartition(ctx, req.Table.ID, g.values)
		if err != nil {
			return rowError(err, req.FirstRow+int64(g.row))
		}
		g.p = p
	}
	return nil
}

// rowError says which row of a request an error about a partition is of.
func rowError(err error, row int64) error {
	e, ok := errors.AsType[*errs.Error](err)
	if !ok {
		return err
	}
	name := ""
	if len(e.Fields) > 0 {
		name = e.Fields[0].Field
	}
	return errs.Row(e.Code, row, name, "%s", e.Message)
}
