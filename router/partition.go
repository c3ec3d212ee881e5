package router

import (
	"context"
	"errors"
	"slices"

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
	faults := make([]*errs.Error, len(targets))
	for g := range targets {
		faults[g] = checkTarget(req, &targets[g], makes[g])
		if makes[g] {
			missing++
		}
	}
	if err := refuseGroups(req, kept, gs.of, faults); err != nil {
		return nil, groups{}, nil, err
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
	if live := millrace.CountLive(ps); err == nil && live+more > millrace.MaxPartitions {
		err = errs.New(errs.InvalidValue, "table %s has %d partitions and the rows need %d more; a table has at most %d: drop some first", t.Path, live, more, millrace.MaxPartitions)
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
			return errs.Row(errs.NullNotAllowed, req.rowNumber(i), name, "partition column %q is NULL", name)
		}
	}
	return nil
}

// checkTarget says what is wrong with a partition that has ended, or that does not
// exist and is not made on demand.
func checkTarget(req *WriteRequest, g *target, makes bool) *errs.Error {
	t := req.Table
	name := millrace.PartitionName(t.Names(t.PartitionBy), g.values)
	switch {
	case g.p != nil && g.p.Dropping:
		return errs.New(errs.Unavailable, "partition %s is being dropped: when its rows are gone from the lake too, a write makes it anew", name)
	case g.p != nil && g.p.State != millrace.PartitionOpen:
		return errs.New(errs.PartitionExpired, "partition %s has ended and takes no more writes", name)
	case makes && t.Options.FixedPartitions:
		return errs.New(errs.PartitionNotFound, "table %s has no partition %s, and its property table.partition.dynamic is false: create the partition first", t.Path, name)
	}
	return nil
}

// refuseGroups refuses those of the rows whose group has a fault; nil when none has.
func refuseGroups(req *WriteRequest, rows, of []int32, faults []*errs.Error) error {
	var out *RefusedRows
	for _, i := range rows {
		fault := faults[of[i]]
		if fault == nil {
			continue
		}
		field := ""
		if len(fault.Fields) > 0 {
			field = fault.Fields[0].Field
		}
		switch {
		case out == nil:
			out = &RefusedRows{err: errs.Row(fault.Code, req.rowNumber(int(i)), field, "%s", fault.Message)}
		case len(out.err.Fields) < errs.MaxFieldErrors:
			out.err.Fields = append(out.err.Fields, errs.Row(fault.Code, req.rowNumber(int(i)), field, "%s", fault.Message).Fields...)
		}
		out.Rows = append(out.Rows, i)
	}
	if out == nil {
		return nil
	}
	return out
}

// makePartitions makes the partitions that the parts of a write need. Others may make
// them at the same time: there is one of each.
func (r *Router) makePartitions(ctx context.Context, req *WriteRequest, parts []bucketRows) error {
	var rows []int32
	var of []int32 // by row; made when there is a fault
	var faults []*errs.Error
	for i := range parts {
		g := parts[i].target
		if g == nil || g.p != nil {
			continue
		}
		p, _, err := r.o.Catalog.EnsurePartition(ctx, req.Table.ID, g.values)
		if err == nil {
			g.p = p
			continue
		}
		fault, ok := errors.AsType[*errs.Error](err)
		if !ok || !ofValues(fault.Code) {
			return err
		}
		if of == nil {
			of = make([]int32, req.Rows.Len())
		}
		for _, row := range parts[i].rows {
			of[row] = int32(len(faults))
		}
		rows, faults = append(rows, parts[i].rows...), append(faults, fault)
	}
	slices.Sort(rows)
	return refuseGroups(req, rows, of, faults)
}

// ofValues says whether a code is one of a partition's values, rather than of what
// keeps the catalog from making any.
func ofValues(c errs.Code) bool {
	switch c {
	case errs.PartitionExpired, errs.ValueOutOfRange, errs.InvalidValue:
		return true
	default:
		return false
	}
}

// inShards refuses to look keys up in partitions that are in the lake alone: that no
// shard has a key there does not mean that there is none.
func inShards(t *millrace.Table, targets []target) error {
	for i := range targets {
		if p := targets[i].p; p != nil && p.LakeOnly() && t.Options.Lake != nil {
			return errs.Row(errs.PartitionExpired, int64(targets[i].row), "",
				"partition %s has expired and is in the lake alone, where keys are not looked up: scan the table with a filter on the key", p.Name)
		}
	}
	return nil
}
