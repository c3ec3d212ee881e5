package remote_test

import (
	"context"
	"log/slog"
	"path"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore/objstoretest"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/storagetest"
	"github.com/millrace/millrace/storage/wal"
)

const walDir = storagetest.Dir + "/wal"

// scratch are the options to renew a shard with.
func (w *world) scratch(id millrace.ShardID, log wal.Log) shard.Options {
	return shard.Options{
		ID: id, Dir: "scratch", Cluster: w.Opts.Cluster, FS: w.FS, Remote: w.store.Shard(id), Log: log, Logger: slog.New(w.Log), Clock: w.Clock,
	}
}

// openLog opens the log in the data directory; with begin, logs begin anew there.
func (w *world) openLog(begin map[millrace.ShardID]wal.Tail) *wal.Files {
	w.t.Helper()
	require.NoError(w.t, w.FS.MkdirAll(walDir, 0o755))
	f, err := wal.OpenFiles(w.FS, walDir, wal.Options{ClusterID: w.Opts.Cluster, Shards: w.Opts.Shards, Begin: begin, Logger: slog.New(w.Log), Registerer: prometheus.NewRegistry()})
	require.NoError(w.t, err)
	return f
}

// crash goes on with what a killed worker leaves, whose last checkpoint is nowhere.
func (w *world) crash() {
	image := w.Image(100)
	w.away()
	w.Close()
	w.objects.Heal()
	w.FS = image
	w.newStore(w.objects)
}

// goOn writes on in a table of its own, here and in the object store, over a restart and
// the loss of the disk; the others stay as they are.
func (w *world) goOn() {
	w.t.Helper()
	others := w.Tables
	w.Tables = nil
	ends := w.ends(others)
	w.Add(storagetest.NewTable(9, 2, w.Opts.Shards, 2, storagetest.KeyedColumns...))
	w.write(60)
	w.publish()
	w.write(30)
	w.reopen(func() {})
	w.Check()
	w.write(30)
	w.publish()
	w.reopen(w.loseShards)
	w.Check()
	require.Equal(w.t, ends, w.ends(others))
	w.Tables = others
	w.cutModel(nil)
	w.Close()
}

// ends are where the logs of tables end.
func (w *world) ends(tables []*storagetest.Modelled) map[millrace.BucketID]millrace.Offset {
	out := map[millrace.BucketID]millrace.Offset{}
	for _, m := range tables {
		for b := range m.Buckets {
			id := m.BucketID(uint16(b))
			lg, v, err := w.Shard(m.Table, uint16(b)).Log(id)
			require.NoError(w.t, err)
			if lg != nil {
				out[id] = v.End
			}
		}
	}
	return out
}

// Shows that a shard whose log is lost goes on from its newest checkpoint in a log of
// another id, above all LSNs and epochs there were; whatever call to the object store the
// first attempts ended at; with files of the old log still there, or without; and that
// an owner of the old log publishes nothing any more.
func TestRenew(t *testing.T) {
	seed := seedOf(t)
	for i := range uint64(3) {
		t.Run("", func(t *testing.T) { testRenew(t, seed+i, i%2 == 0) })
	}
}

func testRenew(t *testing.T, seed uint64, files bool) {
	w := newWorld(t, seed)
	w.tables()
	w.Add(storagetest.NewTable(6, 1, w.Opts.Shards, 1, storagetest.KeyedColumns...))
	w.MustOpen()
	for range 4 {
		w.write(100)
		w.publish()
	}
	published := w.written()
	w.writeAmidCheckpoints(300)
	w.away()
	w.write(60)
	epoch, lsn := millrace.Epoch(0), millrace.LSN(0)
	for _, s := range w.Worker.Shards() {
		st := s.Status()
		epoch, lsn = max(epoch, st.Epoch), max(lsn, st.LSN)
	}
	w.crash()
	require.NoError(t, w.FS.RemoveAll(walDir))
	if !files {
		w.loseShards()
	}
	begin := map[millrace.ShardID]wal.Tail{}
	for id := range millrace.ShardID(w.Opts.Shards) {
		for fails := 0; ; fails++ {
			w.objects.Add(objstoretest.Fault{After: fails * 6, Times: -1, Err: errAway})
			r, err := shard.Renew(t.Context(), w.scratch(id, nil))
			w.objects.Heal()
			w.newStore(w.objects)
			if err != nil {
				require.NoError(t, mustFail(err, errs.Unavailable))
				continue
			}
			require.Greater(t, fails, 1)
			require.NotNil(t, r.From)
			require.Greater(t, r.Begin.LSN, lsn)
			require.Greater(t, r.Begin.Epoch, epoch)
			begin[id] = r.Begin
			break
		}
	}
	require.NoError(t, w.openLog(begin).Close())
	w.MustOpen()
	for _, s := range w.Worker.Shards() {
		require.Greater(t, s.Status().Epoch, begin[s.Status().ID].Epoch)
	}
	require.NotZero(t, w.cutModel(published), "something was lost")
	w.goOn()
}

// Shows that a shard which had no checkpoint begins anew too, empty, and that files of
// its old log are not taken for the new one's.
func TestRenewNothing(t *testing.T) {
	w := newWorld(t, 3)
	calm(w)
	w.MustOpen()
	w.write(50)
	w.crash()
	require.NoError(t, w.FS.RemoveAll(walDir))
	begin := map[millrace.ShardID]wal.Tail{}
	for id := range millrace.ShardID(w.Opts.Shards) {
		r, err := shard.Renew(t.Context(), w.scratch(id, nil))
		require.NoError(t, err)
		require.Nil(t, r.From)
		begin[id] = r.Begin
	}
	require.NoError(t, w.openLog(begin).Close())
	w.MustOpen()
	w.cutModel(nil)
	w.goOn()
}

// cutLog is a log of which what lies behind a record does not read.
type cutLog struct {
	wal.Log

	at millrace.LSN
}

func (l cutLog) Replay(ctx context.Context, after millrace.LSN, fn func(millrace.LSN, millrace.Epoch, wal.Entry) error) error {
	damage := errs.New(errs.CorruptData, "record %d does not read", l.at+1)
	err := l.Log.Replay(ctx, after, func(lsn millrace.LSN, epoch millrace.Epoch, e wal.Entry) error {
		if lsn > l.at {
			return damage
		}
		return fn(lsn, epoch, e)
	})
	return err
}

// Shows what of a shard's log in a cluster is found to be wrong, that nothing changes
// until the loss is accepted, and that the shard then has its checkpoint and what reads of
// the log behind it.
func TestReclaim(t *testing.T) {
	for kind, unsound := range map[string]bool{"sound": false, "damaged": true, "behind": true, "gone": true, "another": true, "set back": true} {
		t.Run(kind, func(t *testing.T) { testReclaim(t, kind, unsound) })
	}
}

func testReclaim(t *testing.T, kind string, unsound bool) {
	w := newWorld(t, uint64(time.Now().UnixNano()))
	w.Opts.Shards, w.Opts.WALFileBytes = 1, 0
	w.tables()
	w.MustOpen()
	w.write(100)
	w.publish()
	older := w.Image(100)
	w.write(100)
	w.publish()
	least := w.written()
	w.writeAmidCheckpoints(200)
	w.write(60)
	read := w.Worker.Shards()[0].Status().LSN
	if kind == "damaged" {
		least = w.written()
	}
	w.write(60)
	if !unsound {
		least = w.written()
	}
	w.crash()
	switch kind {
	case "behind", "set back":
		require.NoError(t, w.FS.RemoveAll(walDir))
		_, err := vfs.Clone(older, w.FS, walDir, walDir, vfs.CloneSync)
		require.NoError(t, err)
	case "another", "gone":
		require.NoError(t, w.FS.RemoveAll(walDir))
	}
	w.loseShards()
	f := w.openLog(nil)
	log, err := f.Shard(0)
	require.NoError(t, err)
	switch kind {
	case "damaged":
		log = cutLog{log, read}
	case "gone":
		log = nil
	case "set back": // and went on from there
		for n := range 2000 {
			_, err := log.Append(t.Context(), []wal.Entry{wal.EpochEntry(millrace.Epoch(100 + n))})
			require.NoError(t, err)
		}
	}
	was := len(w.keys(""))
	loss, r, err := shard.Reclaim(t.Context(), w.scratch(0, log), false)
	require.NoError(t, err)
	require.Equal(t, unsound, loss != nil)
	require.Nil(t, r)
	require.Len(t, w.keys(""), was, "looking changes nothing")
	if unsound {
		require.NoError(t, mustFail(loss.Cause, errs.CorruptData))
		if kind == "damaged" {
			// A checkpoint that was under way may have got further than what is read.
			m, err := w.store.Shard(0).Newest(t.Context())
			require.NoError(t, err)
			require.Equal(t, max(read, m.Remote.StateLSN)+1, loss.From)
		}
		require.NotEmpty(t, loss.Buckets)
		require.NotZero(t, loss.Checkpoint)
		w.objects.Add(objstoretest.Fault{Ops: []objstoretest.Op{objstoretest.OpCreate}, Err: errAway})
		_, _, err = shard.Reclaim(t.Context(), w.scratch(0, log), true)
		require.NoError(t, mustFail(err, errs.Unavailable))
		loss, r, err = shard.Reclaim(t.Context(), w.scratch(0, log), true)
		require.NoError(t, err)
		require.NotNil(t, loss)
	}
	require.NoError(t, f.Close())
	if r != nil {
		require.Greater(t, r.Begin.LSN, loss.To)
		require.NoError(t, w.FS.RemoveAll(walDir))
		require.NoError(t, w.openLog(map[millrace.ShardID]wal.Tail{0: r.Begin}).Close())
	}
	w.MustOpen()
	ends := w.ends(w.Tables)
	if loss != nil {
		for _, b := range loss.Buckets {
			require.Equal(t, b.End, ends[b.ID], "what was told of bucket %s", b.ID)
		}
	}
	w.cutModel(least)
	w.goOn()
	_, err = w.FS.Stat(path.Join("scratch", "state"))
	require.Error(t, err, "the place to work in is cleared")
}
