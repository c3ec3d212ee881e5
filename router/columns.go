package router

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

// System columns have negative ids, which no column of a table has.
const (
	idChangeType millrace.ColumnID = -1 - iota
	idLogOffset
	idCommitTimestamp
	idPartition
	idBucket
	idBefore
	idAfter
)

// systemColumns are the columns every table has besides its own.
var systemColumns = []millrace.Column{
	{ID: idChangeType, Name: millrace.ColChangeType, Type: millrace.DataType{Kind: millrace.String}},
	{ID: idLogOffset, Name: millrace.ColLogOffset, Type: millrace.DataType{Kind: millrace.BigInt}, Nullable: true},
	{ID: idCommitTimestamp, Name: millrace.ColCommitTimestamp, Type: millrace.DataType{Kind: millrace.TimestampLTZ, Precision: 3}, Nullable: true},
	{ID: idPartition, Name: millrace.ColPartition, Type: millrace.DataType{Kind: millrace.String}, Nullable: true},
	{ID: idBucket, Name: millrace.ColBucket, Type: millrace.DataType{Kind: millrace.Int}, Nullable: true},
}

func systemColumn(id millrace.ColumnID) millrace.Column { return systemColumns[-1-id] }

func isSystem(c millrace.Column) bool { return c.ID < 0 }

// namedColumns are the columns of a table that a request or filter of a view may name.
func namedColumns(t *millrace.Table, v View) []millrace.Column {
	out := slices.Clone(t.Schema.Columns)
	for _, c := range systemColumns {
		if v.ofLog() || c.ID != idChangeType {
			out = append(out, c)
		}
	}
	return out
}

// outputColumns are the columns of the answer, in order, and those of the table that
// it is made of.
func outputColumns(t *millrace.Table, v View, asked []string) (cols, data []millrace.Column, err error) {
	if cols, err = askedColumns(t, v, asked); err != nil {
		return nil, nil, err
	}
	data, _ = splitColumns(cols)
	return viewColumns(v, cols, data), data, nil
}

// viewColumns gives the views of the log their one shape: what a record did and where
// it stands, the columns asked for, where it came from.
func viewColumns(v View, asked, data []millrace.Column) []millrace.Column {
	if v == RowsView {
		return asked
	}
	out := []millrace.Column{systemColumn(idChangeType), systemColumn(idLogOffset), systemColumn(idCommitTimestamp)}
	if v == BinlogView {
		out = append(out, imageColumn(idBefore, data), imageColumn(idAfter, data))
	} else {
		out = append(out, data...)
	}
	return append(out, systemColumn(idPartition), systemColumn(idBucket))
}

func askedColumns(t *millrace.Table, v View, asked []string) ([]millrace.Column, error) {
	if len(asked) == 0 {
		return t.Schema.Columns, nil
	}
	named := namedColumns(t, v)
	out := make([]millrace.Column, 0, len(asked))
	for i, name := range asked {
		if slices.Contains(asked[:i], name) {
			return nil, errs.New(errs.DuplicateField, "column %q is asked for twice", name)
		}
		j := slices.IndexFunc(named, func(c millrace.Column) bool { return c.Name == name })
		if j < 0 {
			return nil, errs.New(errs.UnknownColumn, "table %s has no column %q", t.Path, clip(name))
		}
		out = append(out, named[j])
	}
	return out, nil
}

func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

// outputSchema is the Arrow schema of the answer.
func outputSchema(t *millrace.Table, cols []millrace.Column) *arrow.Schema {
	plain := slices.Clone(cols)
	for i := range plain {
		if isSystem(plain[i]) {
			plain[i].ID = 0 // no Parquet field id
		}
	}
	return row.TableArrowSchema(t, plain)
}
