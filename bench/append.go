package main

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
)

const appendBytes = appendRows * rowBytes

// appendDurably is R1: 64 writers append batches of 256 KiB, each waiting until
// its batch is durable.
func (b *bench) appendDurably(ctx context.Context) error {
	n := b.size.AppendMiB << 20 / appendBytes
	recs := make([]arrow.RecordBatch, writers)
	streams := make([]*messages, writers)
	t := &table{name: "appended", columns: columnsOf(appendSchema), buckets: 16}
	for w := range writers {
		recs[w] = appendBatch(random(w), appendRows)
		var err error
		if streams[w], err = encodeStream(putCommand(t), recs[w:w+1]); err != nil {
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
	megabytes := float64(n*appendBytes) / 1e6
	wall := metric{name: "MB/s", unit: "MB/s", target: 0.80, of: func(s *sample, _ bool) float64 { return s.perSecond() }}
	raw := side{name: "raw append and fdatasync, and unsynced to a second file", work: func(ctx context.Context) (float64, int64, error) {
		return megabytes, 0, b.appendRaw(ctx, n)
	}}
	if err := b.compare(ctx, &comparison{
		id: "R1", what: "durable log append over DoPut", disk: true, yard: raw, metrics: []metric{wall},
		ours: side{name: "millrace over DoPut", processes: map[string]int{"millrace": b.server.pid()}, work: func(ctx context.Context) (float64, int64, error) {
			return megabytes, 0, b.server.putClosedLoop(ctx, clients, streams, n)
		}},
	}); err != nil {
		return err
	}
	in, err := openInProcess(ctx, b.path("in-process-append"), t, appendSchema)
	if err != nil {
		return err
	}
	defer in.discard(ctx)
	return b.compare(ctx, &comparison{
		id: "R1", what: "the same without transport: router and storage in process", disk: true, yard: raw, metrics: []metric{wall},
		ours: side{name: "router and storage", work: func(ctx context.Context) (float64, int64, error) {
			return megabytes, 0, in.writeClosedLoop(ctx, recs, n)
		}},
	})
}

// appendRaw appends as many bytes to plain files.
func (b *bench) appendRaw(ctx context.Context, n int) error {
	l, err := openRawLog(b.path("raw"))
	if err != nil {
		return err
	}
	body := make([]byte, appendBytes)
	fill(random(0), body)
	err = l.appendClosedLoop(ctx, body, n)
	if closeErr := l.close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("raw append: %w", err)
	}
	return nil
}
