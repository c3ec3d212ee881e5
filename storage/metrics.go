package storage

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/millrace/millrace/storage/shard"
)

// What the shards of a worker have at a moment is looked up when it is asked for, at most
// once a second, and by one goroutine: a store that hangs must not hang who asks.
const (
	sampleEvery    = time.Second
	samplePatience = 500 * time.Millisecond
)

// sampler looks at the shards of a worker.
type sampler struct {
	w *Worker
	// looking is full while somebody looks.
	looking chan struct{}
	last    chan sample // capacity 1
}

type sample struct {
	at time.Time
	shard.Load

	behind   uint64 // of the follower that is furthest behind
	troubled int
}

func newMetrics(reg prometheus.Registerer, w *Worker) {
	const prefix = "millrace_storage_"
	s := &sampler{w: w, looking: make(chan struct{}, 1), last: make(chan sample, 1)}
	s.last <- sample{}
	p := promauto.With(reg)
	gauge := func(name, help string, of func(*sample) float64) {
		p.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + name, Help: help}, func() float64 {
			now := s.now()
			return of(&now)
		})
	}
	gauge("queued_writes", "Writes that wait for their shard, or for its log.", func(s *sample) float64 { return float64(s.QueuedWrites) })
	gauge("queued_bytes", "Bytes of these writes; each shard takes 16 MiB and then lets writers wait.", func(s *sample) float64 { return float64(s.QueuedBytes) })
	gauge("tail_bytes", "Bytes of the newest records, which are in memory and in the log and not in segments yet.", func(s *sample) float64 { return float64(s.TailBytes) })
	gauge("unsaved_log_bytes", "Bytes that were logged since the last checkpoint of their shard: what a restart has to read.", func(s *sample) float64 { return float64(s.UnsavedBytes) })
	gauge("buckets", "Buckets of the shards that are served here.", func(s *sample) float64 { return float64(s.Buckets) })
	gauge("held_snapshots", "Snapshots of keyed state held for pages and tickets; each shard holds 256 at most.", func(s *sample) float64 { return float64(s.Snapshots) })
	gauge("troubled_shards", "Shards here that are damaged, stopped, or cannot be checkpointed.", func(s *sample) float64 { return float64(s.troubled) })
	gauge("followers_behind_records", "Records that the standby which is furthest behind has not applied, as of its last look at the log.", func(s *sample) float64 { return float64(s.behind) })
	gauge("state_bytes", "Bytes on disk of keyed state.", func(s *sample) float64 { return float64(s.State.DiskBytes) })
	gauge("state_memtable_bytes", "Bytes of keyed state in memory that are not on disk yet.", func(s *sample) float64 { return float64(s.State.MemTableBytes) })
	gauge("state_compaction_debt_bytes", "Bytes of keyed state that are to be compacted, by estimate.", func(s *sample) float64 { return float64(s.State.CompactionDebt) })
	gauge("state_read_amplification", "Levels that a lookup in keyed state may have to read, of the shard where that is highest.", func(s *sample) float64 { return float64(s.State.ReadAmplification) })
	gauge("row_cache_bytes", "Bytes of the cache of rows in use.", func(s *sample) float64 { return float64(s.State.RowCacheBytes) })
	p.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + "block_cache_bytes", Help: "Bytes of the cache of blocks of keyed state in use."},
		func() float64 { return float64(w.cache.Metrics().Size) })
	p.NewCounterFunc(prometheus.CounterOpts{Name: prefix + "block_cache_hits_total", Help: "Blocks of keyed state that were in the cache."},
		func() float64 { return float64(w.cache.Metrics().Hits) })
	p.NewCounterFunc(prometheus.CounterOpts{Name: prefix + "block_cache_misses_total", Help: "Blocks of keyed state that were read from disk."},
		func() float64 { return float64(w.cache.Metrics().Misses) })
}

// now is a sample that is about a second old at most, or the last that could be had.
func (s *sampler) now() sample {
	last := s.peek()
	if s.w.o.Clock.Now().Sub(last.at) < sampleEvery {
		return last
	}
	patience := time.NewTimer(samplePatience)
	defer patience.Stop()
	select {
	case s.looking <- struct{}{}:
	case <-patience.C:
		return s.peek()
	}
	if last = s.peek(); s.w.o.Clock.Now().Sub(last.at) < sampleEvery { // somebody has looked meanwhile
		<-s.looking
		return last
	}
	looked := make(chan struct{})
	go func() {
		defer func() { close(looked); <-s.looking }()
		fresh := s.w.look()
		<-s.last
		s.last <- fresh
	}()
	select {
	case <-looked:
	case <-patience.C:
	}
	return s.peek()
}

func (s *sampler) peek() sample {
	v := <-s.last
	s.last <- v
	return v
}

// look adds up what the shards have.
func (w *Worker) look() sample {
	out := sample{at: w.o.Clock.Now()}
	for _, p := range w.all() {
		if s := p.shard.Load(); s != nil {
			s.AddLoad(&out.Load)
			if s.Trouble() != nil {
				out.troubled++
			}
		}
		if f := p.follower.Load(); f != nil {
			_, behind := f.Position()
			out.behind = max(out.behind, behind)
			if f.Err() != nil {
				out.troubled++
			}
		}
	}
	return out
}
