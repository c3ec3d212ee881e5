package main

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
)

// scaleWorkers is R17: what a CPU-second of Millrace's processes gets done in a cluster of three, two and one
// workers, of appended and of upserted rows, against a single node in turn; and what the nats-servers take for it.
func (b *bench) scaleWorkers(ctx context.Context) error {
	f, err := b.startFleet(ctx, "scaled", 3)
	if err != nil {
		return err
	}
	defer f.kill()
	loads := []*scaleLoad{b.appendLoad(), b.upsertLoad()}
	for _, l := range loads {
		for _, s := range []*server{b.server, f.front} {
			if err := s.create(ctx, l.table); err != nil {
				return err
			}
		}
	}
	for workers := len(f.workers); workers > 0; workers-- {
		for _, l := range loads {
			if err := b.scale(ctx, f, l, workers); err != nil {
				return err
			}
		}
		if err := b.atRest(ctx, f, workers); err != nil {
			return err
		}
		if workers > 1 {
			if err := f.leave(ctx, workers-1); err != nil {
				return err
			}
		}
	}
	return nil
}

// scaleLoad is what is written: batches of which each of the writers sends one after the other.
type scaleLoad struct {
	what    string
	unit    string
	table   *table
	recs    []arrow.RecordBatch // of each writer, one after the other
	batches int                 // of a run
	work    float64             // in a run, in units
}

func (b *bench) appendLoad() *scaleLoad {
	l := &scaleLoad{what: "durable log append", unit: "MB", batches: b.size.AppendMiB << 20 / appendBytes}
	l.table = &table{name: "scaled_log", columns: columnsOf(appendSchema), buckets: fleetShards}
	for w := range writers {
		l.recs = append(l.recs, appendBatch(random(w), appendRows))
	}
	l.work = float64(l.batches*appendBytes) / 1e6
	return l
}

func (b *bench) upsertLoad() *scaleLoad {
	const batchesOfWriter = 16
	l := &scaleLoad{what: "durable upsert with changelog", unit: "rows", batches: b.size.UpsertBatches, work: float64(b.size.UpsertBatches * keyedRows)}
	l.table = &table{name: "scaled_keyed", columns: columnsOf(keyedSchema), key: "id", buckets: fleetShards}
	for w := range writers {
		rnd := random(w)
		for range batchesOfWriter {
			l.recs = append(l.recs, keyedBatch(rnd, keyedRows, func() int64 { return rnd.Int64N(int64(b.size.Keys)) }))
		}
	}
	return l
}

// streams are the load as writers send it.
func (l *scaleLoad) streams() ([]*messages, error) {
	mine := len(l.recs) / writers
	out := make([]*messages, writers)
	for w := range writers {
		var err error
		if out[w], err = encodeStream(putCommand(l.table), l.recs[w*mine:][:mine]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// scale compares a cluster with a single node, both of which are written to over DoPut. A run of a cluster ends when
// the standbys have applied what was written, which is part of what it costs.
func (b *bench) scale(ctx context.Context, f *fleet, l *scaleLoad, workers int) error {
	streams, err := l.streams()
	if err != nil {
		return err
	}
	var clients [2][]flight.Client
	for i, s := range []*server{f.front, b.server} {
		if clients[i], err = s.dial(connections); err != nil {
			return err
		}
		defer closeAll(clients[i])
	}
	c := &comparison{
		id: "R17", what: fmt.Sprintf("%s over DoPut, %d worker(s)", l.what, workers), disk: true,
		ours: side{name: "a cluster", processes: f.processes(), work: func(ctx context.Context) (float64, int64, error) {
			if err := f.front.putClosedLoop(ctx, clients[0], streams, l.batches); err != nil {
				return 0, 0, err
			}
			return l.work, 0, f.settle(ctx)
		}},
		yard: side{name: "a single node", processes: map[string]int{"millrace": b.server.pid()}, work: func(ctx context.Context) (float64, int64, error) {
			return l.work, 0, b.server.putClosedLoop(ctx, clients[1], streams, l.batches)
		}},
		metrics: []metric{
			{name: "per CPU-second of Millrace", unit: l.unit + "/CPU-s", of: func(s *sample, _ bool) float64 { return s.Work / max(together(s.CPU, false), 0.01) }},
			{name: "by time", unit: l.unit + "/s", of: func(s *sample, _ bool) float64 { return s.perSecond() }},
		},
	}
	if err := b.compare(ctx, c); err != nil {
		return err
	}
	runs := b.results[len(b.results)-2].OurRuns
	for _, of := range []struct {
		name  string
		value func(s *sample) float64
	}{
		{"per CPU-second of the nats-servers", func(s *sample) float64 { return s.Work / max(together(s.CPU, true), 0.01) }},
		{"per CPU-second of all", func(s *sample) float64 { return s.Work / max(together(s.CPU, true)+together(s.CPU, false), 0.01) }},
		{"of which the front takes", func(s *sample) float64 { return 100 * s.CPU["front"] / max(together(s.CPU, false), 0.01) }},
	} {
		var v []float64
		for _, s := range runs {
			v = append(v, of.value(s))
		}
		r := &result{ID: "R17", What: c.what, Metric: of.name, Unit: l.unit + "/CPU-s", Ours: median(v), Met: true, Runs: len(runs)}
		if of.name == "of which the front takes" {
			r.Unit = "% of Millrace's CPU"
		}
		b.add(r)
	}
	return nil
}

// atRest tells what the processes of a cluster take while nothing is asked of them.
func (b *bench) atRest(ctx context.Context, f *fleet, workers int) error {
	idle, err := b.idleCPU(ctx, f.processes())
	if err != nil {
		return err
	}
	for _, of := range []struct {
		name string
		nats bool
	}{{"CPU of Millrace", false}, {"CPU of the nats-servers", true}} {
		b.add(&result{ID: "R17", What: fmt.Sprintf("at rest, %d worker(s)", workers), Metric: of.name, Unit: "% of a core", Ours: 100 * together(idle, of.nats), Met: true, Runs: 1})
	}
	return nil
}

// idleCPU is how much of a core each process takes while nothing is asked of them.
func (b *bench) idleCPU(ctx context.Context, pids map[string]int) (map[string]float64, error) {
	before, err := cpuSeconds(pids)
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, b.idleFor()); err != nil {
		return nil, err
	}
	after, err := cpuSeconds(pids)
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for name := range pids {
		out[name] = (after[name] - before[name]) / b.idleFor().Seconds()
	}
	return out, nil
}
