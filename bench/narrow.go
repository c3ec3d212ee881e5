package main

import (
	"context"
	"fmt"
)

// readNarrow is R6: what reading 4 of 40 columns saves, in time and in bytes; and
// the bytes of 2 columns.
func (b *bench) readNarrow(ctx context.Context) error {
	if err := b.loadWide(ctx); err != nil {
		return err
	}
	clients, err := b.server.dial(1)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	read := func(columns int) side {
		// From the second on: the first, which counts rows, compresses well.
		cmd := scanOf(b.wide, request{"columns": wideNames(columns + 1)[1:]})
		if columns == wideColumns {
			cmd = scanOf(b.wide, nil)
		}
		return b.scanSide(clients[0], fmt.Sprintf("%d columns", columns), cmd)
	}
	err = b.compare(ctx, &comparison{
		id: "R6", what: "40 columns of equal width against 4 of them",
		ours: read(wideColumns), yard: read(4),
		metrics: []metric{
			{name: "time of a scan", unit: "ms", target: 8, of: func(s *sample, _ bool) float64 { return s.Wall / s.Work * 1e3 }},
			{name: "bytes of a scan", unit: "MB", target: 8, of: func(s *sample, _ bool) float64 { return float64(s.Wire) / 1e6 }},
			{name: "server CPU of a scan", unit: "ms", of: func(s *sample, _ bool) float64 { return s.CPU["millrace"] / s.Work * 1e3 }},
		},
	})
	if err != nil {
		return err
	}
	return b.compare(ctx, &comparison{
		id: "R6", what: "wide events: 2 columns against 40",
		ours: read(2), yard: read(wideColumns),
		metrics: []metric{{name: "bytes of a scan", unit: "MB", target: 0.08, most: true, of: func(s *sample, _ bool) float64 { return float64(s.Wire) / 1e6 }}},
	})
}

// readFiltered is R14: a filter that one row in a hundred passes, on the column by
// which rows are sorted.
func (b *bench) readFiltered(ctx context.Context) error {
	if err := b.loadWide(ctx); err != nil {
		return err
	}
	clients, err := b.server.dial(1)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	rows := b.wideBatches() * wideRows
	filter := fmt.Sprintf("c00 >= %d AND c00 < %d", rows/2, rows/2+rows/100)
	return b.compare(ctx, &comparison{
		id: "R14", what: "filtered scan of 1 % of the rows, sorted column",
		ours: b.scanSide(clients[0], "filtered scan", scanOf(b.wide, request{"filter": filter})),
		yard: b.scanSide(clients[0], "full scan", scanOf(b.wide, nil)),
		metrics: []metric{
			{name: "time of a scan", unit: "ms", target: 0.10, most: true, of: func(s *sample, _ bool) float64 { return s.Wall / s.Work * 1e3 }},
		},
	})
}
