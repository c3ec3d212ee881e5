package main

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
)

// upsertDurably is R9: 64 writers upsert batches of 100 rows of 100 bytes with
// random keys, each waiting until its batch and the changelog are durable, against
// Pebble batches of the same bytes.
func (b *bench) upsertDurably(ctx context.Context) error {
	t := &table{name: "upserted", columns: columnsOf(keyedSchema), key: "id", buckets: 16}
	const batchesOfWriter = 16
	var recs []arrow.RecordBatch
	streams := make([]*messages, writers)
	for w := range writers {
		rnd := random(w)
		var mine []arrow.RecordBatch
		for range batchesOfWriter {
			mine = append(mine, keyedBatch(rnd, keyedRows, func() int64 { return rnd.Int64N(int64(b.size.Keys)) }))
		}
		recs = append(recs, mine...)
		var err error
		if streams[w], err = encodeStream(putCommand(t), mine); err != nil {
			return err
		}
	}
	if err := b.server.create(ctx, t); err != nil {
		return err
	}
	clients, err := b.server.dial(connections)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	raw, err := openPebble(b.path("pebble-set"))
	if err != nil {
		return err
	}
	defer raw.discard()
	n := b.size.UpsertBatches
	rows := float64(n * keyedRows)
	yard := side{name: "Pebble, synced batches of 100 Sets", work: func(ctx context.Context) (float64, int64, error) {
		return rows, 0, raw.setClosedLoop(ctx, b.size.Keys, n)
	}}
	metrics := []metric{{name: "rows/s", unit: "rows/s", target: 0.50, of: func(s *sample, _ bool) float64 { return s.perSecond() }}}
	if err := b.compare(ctx, &comparison{
		id: "R9", what: "durable upsert with changelog over DoPut", disk: true, yard: yard, metrics: metrics,
		ours: side{name: "millrace over DoPut", processes: map[string]int{"millrace": b.server.pid()}, work: func(ctx context.Context) (float64, int64, error) {
			return rows, 0, b.server.putClosedLoop(ctx, clients, streams, n)
		}},
	}); err != nil {
		return err
	}
	in, err := openInProcess(ctx, b.path("in-process-upsert"), t, keyedSchema)
	if err != nil {
		return err
	}
	defer in.discard(ctx)
	return b.compare(ctx, &comparison{
		id: "R9", what: "the same without transport: router and storage in process", disk: true, yard: yard, metrics: metrics,
		ours: side{name: "router and storage", work: func(ctx context.Context) (float64, int64, error) {
			return rows, 0, in.writeClosedLoop(ctx, recs, n)
		}},
	})
}
