package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/millrace/millrace"
)

// settle is how long storage has for what it writes after an acknowledgement.
const settle = 500 * time.Millisecond

// tierToParquet is R12: a round that takes a log table to the lake, against arrow-go's
// Parquet writer that has the same batches in memory.
func (b *bench) tierToParquet(ctx context.Context) error {
	recs, err := flights()
	if err != nil {
		return err
	}
	n, err := openLakeNode(ctx, b.path("tier-to-parquet"))
	if err != nil {
		return err
	}
	defer n.discard(ctx)
	rows := b.size.TierRows
	megabytes := megabytesOf(recs, rows)
	var t *millrace.Table
	tables := 0
	return b.compare(ctx, &comparison{
		id: "R12", what: fmt.Sprintf("tiering %d flights of a log table, router and tiering in process", rows), disk: true,
		ours: side{
			name: "a round of tiering",
			prepare: func(ctx context.Context) error {
				tables++
				var err error
				if t, err = n.create(ctx, &table{name: fmt.Sprintf("flights%d", tables), columns: columnsOf(flightSchema), buckets: 1}); err != nil {
					return err
				}
				if err := n.write(ctx, t, recs, rows); err != nil {
					return err
				}
				time.Sleep(settle)
				runtime.GC()
				return nil
			},
			work: func(ctx context.Context) (float64, int64, error) {
				s, err := n.tierNow(ctx, t, rows)
				return megabytes, s.Totals.Bytes, err
			},
		},
		yard: side{
			name:    "arrow-go's Parquet writer, from memory",
			prepare: func(context.Context) error { runtime.GC(); return nil },
			work: func(context.Context) (float64, int64, error) {
				size, err := writeParquet(b.path("bare.parquet"), recs, rows)
				return megabytes, size, err
			},
		},
		metrics: []metric{
			{name: "per CPU-second", unit: "MB/CPU-s", target: 0.85, of: func(s *sample, _ bool) float64 { return s.perCPU("harness") }},
			{name: "MB/s", unit: "MB/s", of: func(s *sample, _ bool) float64 { return s.perSecond() }},
			{name: "size of the files", unit: "MB", of: func(s *sample, _ bool) float64 { return float64(s.Wire) / 1e6 }},
		},
	})
}
