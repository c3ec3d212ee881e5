package router

import (
	"context"

	millrace "github.com/millrace/millrace"
)

// Named finds the table that a path with its virtual suffix names, as what it is
// read, and the columns that a read of it may name.
func (r *Router) Named(ctx context.Context, path string) (*millrace.Table, View, []millrace.Column, error) {
	t, view, err := r.resolve(ctx, path, &ReadRequest{}, Scan)
	if err != nil {
		return nil, 0, nil, err
	}
	return t, view, namedColumns(t, view), nil
}
