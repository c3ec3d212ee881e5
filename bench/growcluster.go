package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// growCluster is R18: a cluster of three workers with thousands of buckets and of partitions: how long they take to
// be made, what each process holds with them, whether that stays so, what the nats-servers carry while nothing is
// asked, and how long a rolling restart takes.
func (b *bench) growCluster(ctx context.Context) error {
	f, err := b.startFleet(ctx, "grown", 3)
	if err != nil {
		return err
	}
	defer f.kill()
	g := &grownCluster{b: b, f: f, what: fmt.Sprintf("3 workers, %d buckets, %d partitions", b.size.ClusterBuckets, b.size.ClusterPartitions)}
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"empty", g.rest},
		{"", g.makeBuckets},
		{"", g.makePartitions},
		{"full", g.rest},
		{"under light load", g.light},
		{"", g.restartAll},
		{"full, restarted", g.rest},
	}
	for _, s := range steps {
		g.stage = s.name
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", or(s.name, "R18"), err)
		}
	}
	return nil
}

type grownCluster struct {
	b     *bench
	f     *fleet
	what  string
	stage string
}

var (
	manyBuckets    = &table{name: "many_buckets", columns: "id BIGINT, v STRING", key: "id"}
	manyPartitions = &table{name: "many_partitions", columns: "id BIGINT, p BIGINT, v STRING", key: "id,p", partition: "p", buckets: 1}
)

func (g *grownCluster) add(metric, unit string, v float64) {
	what := g.what
	if g.stage != "" {
		what += ", " + g.stage
	}
	g.b.add(&result{ID: "R18", What: what, Metric: metric, Unit: unit, Ours: v, Met: true, Runs: 1})
}

// timed adds how long something takes.
func (g *grownCluster) timed(metric string, do func() error) error {
	began := time.Now()
	if err := do(); err != nil {
		return err
	}
	g.add(metric, "s", time.Since(began).Seconds())
	return nil
}

func (g *grownCluster) makeBuckets(ctx context.Context) error {
	n := g.b.size.ClusterBuckets
	t := *manyBuckets
	t.buckets = n
	if err := g.timed("making a table of all buckets", func() error { return g.f.front.create(ctx, &t) }); err != nil {
		return err
	}
	// Ten keys a bucket leave none of them out, but for one in 20,000.
	return g.timed("writing ten rows a bucket", func() error { return g.f.front.fill(ctx, &t, 10*n, "") })
}

func (g *grownCluster) makePartitions(ctx context.Context) error {
	if err := g.f.front.create(ctx, manyPartitions); err != nil {
		return err
	}
	return g.timed("making all partitions by writing a row into each", func() error {
		return g.f.front.fill(ctx, manyPartitions, g.b.size.ClusterPartitions, "p")
	})
}

// rest measures while nothing is asked of the cluster.
func (g *grownCluster) rest(ctx context.Context) error {
	if err := g.f.settle(ctx); err != nil {
		return err
	}
	if err := sleep(ctx, g.b.idleFor()); err != nil { // collections, flushes and checkpoints end
		return err
	}
	in, out, err := g.f.messages(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	cpu, err := g.b.idleCPU(ctx, g.f.processes())
	if err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	in2, out2, err := g.f.messages(ctx)
	if err != nil {
		return err
	}
	held, err := g.f.memory()
	if err != nil {
		return err
	}
	for _, p := range slices.Sorted(maps.Keys(held)) {
		g.add("memory of "+p, "MiB", held[p])
	}
	for _, p := range slices.Sorted(maps.Keys(cpu)) {
		g.add("CPU of "+p, "% of a core", 100*cpu[p])
	}
	g.add("messages to the nats-servers, among them too", "/s", (in2-in)/took)
	g.add("messages from the nats-servers, among them too", "/s", (out2-out)/took)
	return nil
}

const (
	lightEvery = 100 * time.Millisecond // between two requests
	lightRows  = 10                     // of one
	sampleAt   = 10 * time.Second       // between two looks at the memory
)

// light writes a few rows at a time and looks one up, all over the buckets and partitions, and watches the memory of
// each process: what it grew by from the first third to the last.
func (g *grownCluster) light(ctx context.Context) error {
	rnd := random(1)
	length := time.Duration(g.b.size.LightSeconds) * time.Second
	held := map[string][]float64{}
	var millis []float64
	look := time.Now()
	before, err := cpuSeconds(g.f.processes())
	if err != nil {
		return err
	}
	began := time.Now()
	for n := 0; time.Since(began) < length; n++ {
		if err := sleep(ctx, time.Until(began.Add(time.Duration(n)*lightEvery))); err != nil {
			return err
		}
		if !time.Now().Before(look) {
			look = look.Add(max(min(sampleAt, length/10), time.Second))
			now, err := g.f.memory()
			if err != nil {
				return err
			}
			for p, mib := range now {
				held[p] = append(held[p], mib)
			}
		}
		t, partition, most := manyBuckets, "", 10*g.b.size.ClusterBuckets
		if n%2 == 1 {
			t, partition, most = manyPartitions, "p", g.b.size.ClusterPartitions
		}
		var rows []string
		for range lightRows {
			rows = append(rows, rowOf(rnd.IntN(most), partition))
		}
		at := time.Now()
		if err := g.f.front.write(ctx, t, strings.Join(rows, ",")); err != nil {
			return err
		}
		millis = append(millis, time.Since(at).Seconds()*1e3)
	}
	took := time.Since(began).Seconds()
	after, err := cpuSeconds(g.f.processes())
	if err != nil {
		return err
	}
	for _, p := range slices.Sorted(maps.Keys(held)) {
		v := held[p]
		third := max(len(v)/3, 1)
		first, last := median(v[:third]), median(v[len(v)-third:])
		g.add("memory of "+p, fmt.Sprintf("MiB, median of the last third; at most %.0f; %.0f in the first third", slices.Max(v), first), last)
		g.add("CPU of "+p, "% of a core", 100*(after[p]-before[p])/took)
	}
	slices.Sort(millis)
	g.add(fmt.Sprintf("a write of %d rows, median", lightRows), "ms", percentile(millis, 0.5))
	g.add(fmt.Sprintf("a write of %d rows, p99", lightRows), "ms", percentile(millis, 0.99))
	return nil
}

// restartAll restarts the workers one after the other, each when all shards are well again, while single rows are
// written: how long that takes, and how long the slowest of them took.
func (g *grownCluster) restartAll(ctx context.Context) error {
	done, stop := make(chan error, 1), make(chan struct{})
	var once sync.Once
	halt := func() { once.Do(func() { close(stop) }) }
	defer halt()
	slowest, writes := 0.0, 0
	go func() {
		rnd := random(2)
		for {
			select {
			case <-stop:
				done <- nil
				return
			case <-time.After(lightEvery):
			}
			at := time.Now()
			if err := g.f.front.write(ctx, manyBuckets, rowOf(rnd.IntN(10*g.b.size.ClusterBuckets), "")); err != nil {
				done <- err
				return
			}
			slowest, writes = math.Max(slowest, time.Since(at).Seconds()), writes+1
		}
	}()
	var stops, starts, settles []float64
	began := time.Now()
	for _, w := range g.f.workers {
		at := time.Now()
		if err := w.stop(); err != nil {
			return err
		}
		stops = append(stops, time.Since(at).Seconds())
		at = time.Now()
		if err := w.start(ctx); err != nil {
			return err
		}
		starts = append(starts, time.Since(at).Seconds())
		at = time.Now()
		if err := g.f.settle(ctx); err != nil {
			return err
		}
		settles = append(settles, time.Since(at).Seconds())
	}
	g.add("rolling restart of the workers", "s", time.Since(began).Seconds())
	halt()
	if err := <-done; err != nil {
		return fmt.Errorf("a write during the restart: %w", err)
	}
	g.add("stop of a worker, median", fmt.Sprintf("s, of %.1f", stops), median(stops))
	g.add("start of a worker, median", fmt.Sprintf("s, of %.1f", starts), median(starts))
	g.add("until all shards are where they stay, median", fmt.Sprintf("s, of %.1f", settles), median(settles))
	g.add("slowest write meanwhile", fmt.Sprintf("s, of %d, none failed", writes), slowest)
	return nil
}

// idleFor is how long a cluster is watched at rest.
func (b *bench) idleFor() time.Duration { return time.Duration(b.size.IdleSeconds) * time.Second }

// sleep waits, or ends early with the context.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
