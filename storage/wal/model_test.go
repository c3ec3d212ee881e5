package wal_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/wal"
	"github.com/millrace/millrace/storage/wal/waltest"
)

const modelShards = 3

// machine is a log beside what a ledger knows of it. Faults are armed by one action
// and met by another.
type machine struct {
	mem    *vfs.MemFS
	f      *wal.Files
	l      *ledger
	rotate int64
	shards int
	fail   error // what the next write or sync meets, after skip others
	sync   bool  // a sync, not a write
	skip   int
	seed   uint64
}

func (m *machine) inject(op errorfs.Op) error {
	if m.fail == nil || m.sync != (op.Kind == errorfs.OpFileSyncData) || (!m.sync && op.Kind != errorfs.OpFileWrite) {
		return nil
	}
	if m.skip--; m.skip >= 0 {
		return nil
	}
	err := m.fail
	m.fail = nil
	return err
}

func (m *machine) open(t *rapid.T) {
	m.fail = nil
	opts := options(m.shards)
	opts.RotateBytes = m.rotate
	opts.Random = rand.NewChaCha8([32]byte{byte(m.seed)})
	m.seed++
	f, err := wal.OpenFiles(errorfs.Wrap(m.mem, errorfs.InjectorFunc(m.inject)), dir, opts)
	require.NoError(t, err)
	m.f = f
}

func (m *machine) log(t *rapid.T, s int) wal.Log {
	log, err := m.f.Shard(millrace.ShardID(s))
	require.NoError(t, err)
	return log
}

// check compares all shards with the ledger. After a start, appends whose outcome was
// not known are settled by what is there.
func (m *machine) check(t *rapid.T, settle bool) {
	for s := range modelShards {
		log := m.log(t, s)
		got, err := waltest.ReadAll(log, m.l.purged[s])
		require.NoError(t, err)
		rows := 0
		there := map[string]millrace.LSN{}
		epoch := millrace.Epoch(0)
		for _, g := range got {
			if g.Entry.Kind == wal.Epoch {
				require.Greater(t, g.Epoch, epoch)
				continue
			}
			require.GreaterOrEqual(t, g.Epoch, epoch)
			epoch = g.Epoch
			there[string(g.Entry.Data[:8])] = g.LSN
			rows++
		}
		i, seen := 0, 0
		next := func() wal.Entry {
			for got[i].Entry.Kind == wal.Epoch {
				i++
			}
			i++
			return got[i-1].Entry
		}
		for n := range m.l.sent[s] {
			e := &m.l.sent[s][n]
			lsn, ok := there[string(binary.LittleEndian.AppendUint64(nil, e.id))]
			switch {
			case ok:
				require.NotEqual(t, refused, e.fate)
				require.True(t, bytes.Equal(e.entry().Data, next().Data))
				seen++
			case e.fate == acked:
				require.LessOrEqual(t, e.lsn, m.l.purged[s])
			}
			if settle && e.fate == open {
				e.fate, e.lsn = refused, 0
				if ok {
					e.fate, e.lsn = acked, lsn
				}
			}
		}
		require.Equal(t, rows, seen, "entries doubled, or of nobody")
	}
}

// The log equals a model under random operations: appends of several entries, of
// epochs, purges, closing and opening with other settings, power cuts that keep part
// of what was not synced, full disks and failed fsyncs.
func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{mem: vfs.NewCrashableMem(), l: newLedger(modelShards), rotate: 5000, shards: modelShards}
		m.open(t)
		defer func() { _ = m.f.Close() }()
		shard := rapid.IntRange(0, modelShards-1)
		restart := func(t *rapid.T) {
			m.rotate = rapid.Int64Range(1, 50_000).Draw(t, "rotate")
			m.shards = max(m.shards, modelShards+rapid.IntRange(0, 2).Draw(t, "more shards"))
			m.open(t)
			m.check(t, true)
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				sizes := rapid.SliceOfN(rapid.IntRange(0, 3000), 1, 4).Draw(t, "sizes")
				s := shard.Draw(t, "shard")
				_ = m.l.append(m.log(t, s), s, sizes...)
			},
			"appendLarge": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") == 0 {
					s := shard.Draw(t, "shard")
					_ = m.l.append(m.log(t, s), s, wal.MaxRecordBytes+rapid.IntRange(-100, 100).Draw(t, "size"))
				}
			},
			"epoch": func(t *rapid.T) {
				log := m.log(t, shard.Draw(t, "shard"))
				_, _ = log.Append(context.Background(), []wal.Entry{wal.EpochEntry(log.Tail().Epoch + 1)})
			},
			"purge": func(t *rapid.T) {
				s := shard.Draw(t, "shard")
				require.NoError(t, m.l.purge(m.log(t, s), s))
			},
			"reopen": func(t *rapid.T) {
				require.NoError(t, m.f.Close())
				restart(t)
			},
			"crash": func(t *rapid.T) {
				percent := rapid.SampledFrom([]int{0, 30, 50, 80, 100}).Draw(t, "percent")
				left := crash(m.mem, percent, rapid.Uint64().Draw(t, "seed"))
				require.NoError(t, m.f.Close())
				m.mem = left
				restart(t)
			},
			"arm": func(t *rapid.T) {
				m.fail = rapid.SampledFrom([]error{syscall.ENOSPC, errorfs.ErrInjected}).Draw(t, "fault")
				m.sync = rapid.Bool().Draw(t, "sync")
				m.skip = rapid.IntRange(0, 3).Draw(t, "skip")
			},
			"read": func(t *rapid.T) { m.check(t, false) },
			"": func(t *rapid.T) {
				if err := m.f.Err(); err != nil {
					require.Equal(t, errs.Unavailable, errs.CodeOf(err))
				}
			},
		})
	})
}
