package main

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
)

// appendsPerSecond is the fixed rate at which R10 writes: far below what the
// server can take, as a tail is read.
const appendsPerSecond = 200

// follow is R10: how long after its acknowledgement a row is with a reader that
// tails the table. Writes are due at fixed times, and what one is late for another
// counts.
func (b *bench) follow(ctx context.Context) error {
	t := &table{name: "followed", columns: columnsOf(appendSchema), buckets: 1}
	if err := b.server.create(ctx, t); err != nil {
		return err
	}
	clients, err := b.server.dial(2)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	b.say("R10 acknowledgement to tail, %d appends/s for %d s", appendsPerSecond, b.size.TailSeconds)
	n := b.size.TailSeconds * appendsPerSecond
	pressure, err := cpuPressure()
	if err != nil {
		return err
	}
	seen, stop, err := watch(ctx, clients[0], t, n)
	if err != nil {
		return err
	}
	defer stop()
	due, acked, err := b.appendAtRate(ctx, clients[1], t, n)
	if err != nil {
		return err
	}
	arrived, err := seen()
	if err != nil {
		return err
	}
	var afterAck, afterDue, ackAfterDue []float64
	for i := range n {
		// A tail may be faster than the acknowledgement.
		afterAck = append(afterAck, max(arrived[i].Sub(acked[i]), 0).Seconds()*1e3)
		afterDue = append(afterDue, arrived[i].Sub(due[i]).Seconds()*1e3)
		ackAfterDue = append(ackAfterDue, acked[i].Sub(due[i]).Seconds()*1e3)
	}
	b.addLatency("acknowledgement to tail", afterAck, pressure, map[float64]float64{0.99: 20})
	b.addLatency("append due to acknowledgement", ackAfterDue, pressure, nil)
	b.addLatency("append due to tail", afterDue, pressure, nil)
	return nil
}

func (b *bench) addLatency(what string, millis []float64, pressure float64, targets map[float64]float64) {
	slices.Sort(millis)
	busy := 0
	if pressure > busyAbove {
		busy = 1
	}
	for _, p := range []struct {
		name string
		p    float64
	}{{"p50", 0.50}, {"p99", 0.99}, {"p99.9", 0.999}} {
		v := percentile(millis, p.p)
		b.add(&result{
			ID: "R10", What: what, Metric: p.name, Unit: "ms", Ours: v, Target: targets[p.p], AtMost: true,
			Met: targets[p.p] == 0 || v <= targets[p.p], Busy: busy, Runs: 1,
		})
	}
}

// watch tails a table that is empty, and gives when each of n rows came.
func watch(ctx context.Context, c flight.Client, t *table, n int) (seen func() ([]time.Time, error), stop func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	cmd := scanOf(t, request{"view": "changelog", "from": "earliest", "until": "never"})
	st, err := c.DoGet(ctx, &flight.Ticket{Ticket: cmd})
	if err != nil {
		cancel()
		return nil, nil, err
	}
	// Schema and first position come at once: from then on it follows.
	for range 2 {
		if _, err := st.Recv(); err != nil {
			cancel()
			return nil, nil, err
		}
	}
	var arrived []time.Time
	var failed error
	var wg sync.WaitGroup
	wg.Go(func() {
		for len(arrived) < n && failed == nil {
			var fd *flight.FlightData
			if fd, failed = st.Recv(); failed != nil {
				return
			}
			now := time.Now()
			var meta struct{ Rows int }
			if failed = json.Unmarshal(fd.AppMetadata, &meta); failed == nil {
				arrived = append(arrived, slices.Repeat([]time.Time{now}, meta.Rows)...)
			}
		}
	})
	return func() ([]time.Time, error) { wg.Wait(); return arrived, failed }, func() { cancel(); wg.Wait() }, nil
}

// appendAtRate appends n rows, one at a time, when each is due.
func (b *bench) appendAtRate(ctx context.Context, c flight.Client, t *table, n int) (due, acked []time.Time, err error) {
	m, err := encodeStream(putCommand(t), []arrow.RecordBatch{appendBatch(random(0), 1)})
	if err != nil {
		return nil, nil, err
	}
	p, err := openPut(ctx, c, m.schema)
	if err != nil {
		return nil, nil, err
	}
	began := time.Now()
	for i := range n {
		due = append(due, began.Add(time.Duration(i)*time.Second/appendsPerSecond))
		time.Sleep(time.Until(due[i]))
		if err := p.put(m.batches[0]); err != nil {
			return nil, nil, err
		}
		acked = append(acked, time.Now())
	}
	return due, acked, p.st.CloseSend()
}
