package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/millrace/millrace"
)

// loadedRows are those of a batch that loads a keyed table.
const loadedRows = 10_000

// changes are which rows of a keyed table change before a round.
var changes = []struct {
	name string
	// follows says that the cost of a changed row must not grow with the table. That of
	// a fixed number of rows anywhere does: the key column is looked through for them.
	follows bool
	keys    func(rnd *rand.Rand, size int) []int64
}{
	{"1 % changed, anywhere", true, func(rnd *rand.Rand, size int) []int64 { return anywhere(rnd, size, size/100) }},
	{"1 % changed, neighbours", true, func(rnd *rand.Rand, size int) []int64 {
		first, out := rnd.IntN(size-size/100), make([]int64, size/100)
		for i := range out {
			out[i] = int64(first + i)
		}
		return out
	}},
	{"100 changed, anywhere", false, func(rnd *rand.Rand, size int) []int64 { return anywhere(rnd, size, 100) }},
}

func anywhere(rnd *rand.Rand, size, n int) []int64 {
	chosen := map[int64]bool{}
	var out []int64
	for len(out) < n {
		if k := rnd.Int64N(int64(size)); !chosen[k] {
			chosen[k] = true
			out = append(out, k)
		}
	}
	return out
}

// changed is what a round cost.
type changed struct {
	micros float64 // of CPU, by changed row
	read   float64 // bytes
	lake   float64 // bytes of the table
}

// tierChanges measures rounds of keyed tables of several sizes: what they cost has to
// follow what has changed, not the table.
func (b *bench) tierChanges(ctx context.Context) error {
	n, err := openLakeNode(ctx, b.path("changes"))
	if err != nil {
		return err
	}
	defer n.discard(ctx)
	b.say("rounds of keyed tables of %v rows", b.size.ChangedOf)
	pressure, err := cpuPressure()
	if err != nil {
		return err
	}
	least := make([]*changed, len(changes))
	for _, size := range b.size.ChangedOf {
		t, err := n.loadKeyed(ctx, size)
		if err != nil {
			return err
		}
		for i, c := range changes {
			cost, err := n.changedRounds(ctx, t, b.o.Pairs, func(rnd *rand.Rand) []int64 { return c.keys(rnd, size) })
			if err != nil {
				return err
			}
			what := fmt.Sprintf("a round of a keyed table of %d rows, %s", size, c.name)
			if least[i] == nil {
				least[i] = cost
			}
			ratio, part := cost.micros/least[i].micros, cost.read/cost.lake
			cpu := &result{
				ID: "R12K", What: what, Yardstick: fmt.Sprintf("the same of %d rows", b.size.ChangedOf[0]), Metric: "CPU by changed row", Unit: "µs",
				Ours: cost.micros, Yard: least[i].micros, Ratio: ratio, Ratios: []float64{ratio}, Met: true, Busy: busy(pressure), Runs: b.o.Pairs,
			}
			if c.follows {
				cpu.Target, cpu.AtMost, cpu.Met = 1.3, true, ratio <= 1.3
			}
			b.add(cpu)
			b.add(&result{
				ID: "R12K", What: what, Yardstick: "the table's files", Metric: "bytes read by a round", Unit: "MB",
				Ours: cost.read / 1e6, Yard: cost.lake / 1e6, Ratio: part, Ratios: []float64{part}, Target: 0.5, AtMost: true, Met: part <= 0.5, Busy: busy(pressure), Runs: b.o.Pairs,
			})
		}
	}
	return nil
}

// loadKeyed makes a keyed table with the keys from 0 on, all of it in the lake.
func (n *lakeNode) loadKeyed(ctx context.Context, size int) (*millrace.Table, error) {
	t, err := n.create(ctx, &table{name: fmt.Sprintf("changed%d", size), columns: columnsOf(keyedSchema), key: "id", buckets: 1})
	if err != nil {
		return nil, err
	}
	rnd, next := random(0), int64(-1)
	for at := 0; at < size; at += loadedRows {
		rec := keyedBatch(rnd, min(loadedRows, size-at), func() int64 { next++; return next })
		if err := n.write(ctx, t, []arrow.RecordBatch{rec}, int(rec.NumRows())); err != nil {
			return nil, err
		}
	}
	_, err = n.tierNow(ctx, t, size)
	return t, err
}

// changedRounds makes rounds of what keys says and gives the medians of what they cost;
// the first is not counted.
func (n *lakeNode) changedRounds(ctx context.Context, t *millrace.Table, rounds int, keys func(*rand.Rand) []int64) (*changed, error) {
	rnd := random(1)
	var micros, read, lake []float64
	for i := range rounds + 1 {
		next, chosen := -1, keys(rnd)
		rec := keyedBatch(rnd, len(chosen), func() int64 { next++; return chosen[next] })
		if err := n.write(ctx, t, []arrow.RecordBatch{rec}, len(chosen)); err != nil {
			return nil, err
		}
		time.Sleep(settle)
		readBefore, err := n.bytesRead()
		if err != nil {
			return nil, err
		}
		before := selfCPU()
		s, err := n.tierNow(ctx, t, len(chosen))
		if err != nil {
			return nil, err
		}
		cost := selfCPU() - before
		readAfter, err := n.bytesRead()
		if err != nil {
			return nil, err
		}
		if i > 0 {
			micros = append(micros, float64(cost.Microseconds())/float64(len(chosen)))
			read, lake = append(read, readAfter-readBefore), append(lake, float64(s.Totals.Bytes))
		}
	}
	return &changed{median(micros), median(read), slices.Min(lake)}, nil
}

// selfCPU is the time that this process has had, finer than /proc tells it.
func selfCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // of the process itself it does not fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
