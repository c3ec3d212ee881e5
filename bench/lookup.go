package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"golang.org/x/sync/errgroup"
)

// lookupStreams is how many clients look up at the same time, each over a
// connection of its own, each waiting for its answer.
const lookupStreams = connections

// lookUp is R7: lookups of 100 keys over DoExchange, against GETs of a Redis in
// pipelines of 100, and against Pebble in process.
func (b *bench) lookUp(ctx context.Context) error {
	t := &table{name: "dimension", columns: columnsOf(keyedSchema), key: "id", buckets: 16}
	if err := b.loadKeyed(ctx, t); err != nil {
		return err
	}
	clients, err := b.server.dial(lookupStreams)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	var recs []arrow.RecordBatch
	for i := range 256 {
		recs = append(recs, keyBatch(random(i), b.size.Keys))
	}
	asks, err := encodeStream(map[string]string{"op": "lookup", "table": t.full()}, recs)
	if err != nil {
		return err
	}
	keys := float64(b.size.LookupBatches * keyedRows)
	ours := side{name: "millrace over DoExchange", processes: map[string]int{"millrace": b.server.pid(), "server": b.server.pid()}, work: func(ctx context.Context) (float64, int64, error) {
		return keys, 0, lookUpClosedLoop(ctx, clients, asks, b.size.LookupBatches)
	}}
	perCPU := func(target float64, process string) []metric {
		return []metric{
			{name: "keys per server-CPU-second", unit: "keys/CPU-s", target: target, of: func(s *sample, ours bool) float64 {
				if ours {
					return s.perCPU("server")
				}
				return s.perCPU(process)
			}},
			{name: "keys/s", unit: "keys/s", of: func(s *sample, _ bool) float64 { return s.perSecond() }},
		}
	}
	if err := b.compareWithRedis(ctx, ours, perCPU(0.35, "server")); err != nil {
		return err
	}
	raw, err := b.loadPebble(ctx)
	if err != nil {
		return err
	}
	defer raw.discard()
	return b.compare(ctx, &comparison{
		id: "R7", what: "lookups in batches of 100 keys", ours: ours, metrics: perCPU(0.60, "harness"),
		yard: side{name: "Pebble Get in process", work: func(ctx context.Context) (float64, int64, error) {
			return keys, 0, raw.get(ctx, b.size.Keys, b.size.LookupBatches)
		}},
	})
}

// loadKeyed fills a keyed table with ids from 0 and has it in files.
func (b *bench) loadKeyed(ctx context.Context, t *table) error {
	b.say("loading %d keyed rows", b.size.Keys)
	if err := b.server.create(ctx, t); err != nil {
		return err
	}
	const most = 10_000
	rnd := random(0)
	var id int64
	next := func() int64 { id++; return id - 1 }
	for left := b.size.Keys; left > 0; left -= most {
		if err := b.server.load(ctx, t, []arrow.RecordBatch{keyedBatch(rnd, min(left, most), next)}); err != nil {
			return fmt.Errorf("loading: %w", err)
		}
	}
	return b.server.restart(ctx)
}

// lookUpClosedLoop has each client send its next keys when it has the rows of
// those before.
func lookUpClosedLoop(ctx context.Context, clients []flight.Client, asks *messages, n int) error {
	var left atomic.Int64
	left.Store(int64(n))
	eg, ctx := errgroup.WithContext(ctx)
	for w, c := range clients {
		eg.Go(func() error {
			st, err := c.DoExchange(ctx)
			if err != nil {
				return err
			}
			if err := st.Send(asks.schema); err != nil {
				return err
			}
			schema, err := st.Recv()
			if err != nil {
				return err
			}
			var last *flight.FlightData
			for i := w * len(asks.batches) / len(clients); left.Add(-1) >= 0; i++ {
				if err := st.Send(asks.batches[i%len(asks.batches)]); err != nil {
					return err
				}
				if last, err = st.Recv(); err != nil {
					return err
				}
			}
			if err := st.CloseSend(); err != nil || last == nil {
				return err
			}
			return allFound(schema, last)
		})
	}
	return eg.Wait()
}

// allFound checks an answer: keys that are not found would be found faster.
func allFound(schema, answer *flight.FlightData) error {
	r, err := flight.NewRecordReader(&replay{msgs: []*flight.FlightData{schema, answer}})
	if err != nil {
		return err
	}
	defer r.Release()
	if !r.Next() {
		return fmt.Errorf("an answer cannot be read: %w", r.Err())
	}
	found := r.RecordBatch().Column(0).(*array.Boolean)
	for i := range found.Len() {
		if !found.Value(i) {
			return fmt.Errorf("key %d of %d was not found", i, found.Len())
		}
	}
	if found.Len() != keyedRows {
		return fmt.Errorf("%d rows were answered, of %d", found.Len(), keyedRows)
	}
	return nil
}

// replay gives messages to a reader.
type replay struct{ msgs []*flight.FlightData }

var errReplayed = errors.New("no more messages")

// Recv implements flight.DataStreamReader.
func (r *replay) Recv() (*flight.FlightData, error) {
	if len(r.msgs) == 0 {
		return nil, errReplayed
	}
	m := r.msgs[0]
	r.msgs = r.msgs[1:]
	return m, nil
}
