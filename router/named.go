package router

import (
	"context"
	"slices"

	millrace "github.com/millrace/millrace"
)

// Named is what a path names: a table, and as what it is read.
type Named struct {
	Table *millrace.Table
	View  View
	Tier  Tier
	// Shape are the columns that a read has when it names none; Columns are they and
	// what else it can give.
	Shape, Columns []millrace.Column
	// Filtered are the columns that a filter may name.
	Filtered []millrace.Column
}

// Named finds the table that a path with its virtual suffix names.
func (r *Router) Named(ctx context.Context, path string) (*Named, error) {
	t, view, tier, err := r.resolve(ctx, path, &ReadRequest{}, Scan)
	if err != nil {
		return nil, err
	}
	n := &Named{Table: t, View: view, Tier: tier, Filtered: namedColumns(t, view)}
	if n.Shape, _, err = outputColumns(t, view, nil); err != nil {
		return nil, err
	}
	n.Columns = slices.Clone(n.Shape)
	if view == RowsView {
		for _, c := range n.Filtered {
			if isSystem(c) {
				n.Columns = append(n.Columns, c)
			}
		}
	}
	return n, nil
}
