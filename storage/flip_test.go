package storage_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/storagetest"
)

// Shows that a flipped bit anywhere in what a worker keeps is found, and named, before
// a wrong row is returned, or changes nothing; and that the other shard goes on unless
// it shares the file (F6). MILLRACE_FLIPS says how many bits.
func TestBitFlips(t *testing.T) {
	flips := 250
	if s := os.Getenv("MILLRACE_FLIPS"); s != "" {
		var err error
		flips, err = strconv.Atoi(s)
		require.NoError(t, err)
	}
	seed := seeds(t, 1)[0]
	t.Logf("MILLRACE_MODEL_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 9))
	w, image := populated(t, seed)
	files := filesOf(t, image)
	found := map[string]int{}
	for i := range flips {
		f := files[i%len(files)]
		if len(f.bytes) == 0 {
			continue
		}
		at, bit := rng.IntN(len(f.bytes)), rng.IntN(8)
		what := fmt.Sprintf("bit %d of byte %d of %s", bit, at, f.name)
		fs := image.CrashClone(vfs.CrashCloneCfg{})
		flipped := append([]byte(nil), f.bytes...)
		flipped[at] ^= 1 << bit
		putFile(t, fs, f.name, string(flipped))
		kind := f.name[strings.LastIndexAny(f.name, "./")+1:]
		if looksDamaged(t, w, fs, f.name, what) {
			found[kind+" found"]++
		} else {
			found[kind+" harmless"]++
		}
	}
	t.Log(found)
}

// populated makes a worker of two shards with files of every kind, and what it leaves
// when it is killed.
func populated(t *testing.T, seed uint64) (*storagetest.World, *vfs.MemFS) {
	w := small(t)
	w.Opts.Shards, w.Opts.SealBytes, w.Opts.BucketTailBytes, w.Opts.WALFileBytes = 2, 4<<10, 2<<10, 32<<10
	w.MustOpen()
	g := storagetest.Generator{Rng: rand.New(rand.NewPCG(seed, 3)), Keys: 100}
	for _, tbl := range []*storagetest.Table{
		storagetest.NewTable(2, 4, 2, 2, storagetest.KeyedColumns...), storagetest.NewTable(4, 2, 2, 0, storagetest.LogColumns...),
	} {
		w.Add(tbl)
	}
	some := func(n int) {
		for i := range n {
			for _, m := range w.Tables {
				for b := range m.Buckets {
					if (i+b)%3 > 0 {
						write(t, w, m, g.Write(m.Table, uint16(b)))
					}
				}
			}
		}
	}
	some(12)
	checkpoint(t, w)
	some(8)
	checkpoint(t, w)
	some(3)
	image := w.Image(100)
	w.Close()
	w.FS = image
	return w, image
}

type stored struct {
	name  string
	bytes []byte
}

// filesOf are all files that matter, those of the same kind next to each other.
func filesOf(t testing.TB, fs *vfs.MemFS) []stored {
	var out []stored
	var walk func(dir string)
	walk = func(dir string) {
		names, err := fs.List(dir)
		require.NoError(t, err)
		for _, n := range names {
			p := fs.PathJoin(dir, n)
			st, err := fs.Stat(p)
			require.NoError(t, err)
			switch {
			case st.IsDir():
				walk(p)
			case strings.Contains(p, "/shards/00001/"):
			default:
				out = append(out, stored{p, readFile(t, fs, p)})
			}
		}
	}
	walk(storagetest.Dir)
	return out
}

func readFile(t testing.TB, fs vfs.FS, name string) []byte {
	f, err := fs.Open(name)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	st, err := f.Stat()
	require.NoError(t, err)
	b := make([]byte, st.Size())
	if len(b) > 0 {
		_, err = f.ReadAt(b, 0)
		require.NoError(t, err)
	}
	return b
}

// looksDamaged opens a worker and reads everything: it says whether damage was told of,
// and fails when anything is wrong without that.
func looksDamaged(t *testing.T, w *storagetest.World, fs *vfs.MemFS, file, what string) (told bool) {
	v := &storagetest.World{TB: t, Rng: w.Rng, FS: fs, Opts: w.Opts, Clock: w.Clock, Log: w.Log, Tables: w.Tables}
	damage := func(err error) bool {
		if err == nil {
			return false
		}
		require.True(t, errs.Is(err, errs.CorruptData), "%s: %v", what, err)
		base := file[strings.LastIndex(file, "/")+1:]
		if i := strings.Index(base, ".sst"); i > 0 {
			base = base[:i]
		} else if strings.Contains(file, "/state/") {
			base = "/state" // Pebble has no files that could be mended one by one
		}
		// A log that lost its last records to the flip is told of by its shard.
		if !strings.Contains(err.Error(), "is not the log this shard wrote last") {
			require.Contains(t, err.Error(), base, "%s: the file is not named", what)
		}
		told = true
		return true
	}
	var err error
	v.Worker, err = v.TryOpen()
	if damage(err) {
		return told
	}
	defer func() { _ = v.Worker.Close(context.Background()) }() // it may be damaged
	inLog := strings.Contains(file, "/wal/")
	for i, sh := range v.Worker.Shards() {
		if i == 1 && !inLog {
			require.NoError(t, sh.Err(), what)
		}
		if damage(sh.Err()) {
			continue
		}
		for _, m := range v.Tables {
			for b, want := range m.Buckets {
				if int(m.Shards[b]) != i {
					continue
				}
				log, _, err := storagetest.ReadLog(sh, m.Table, uint16(b))
				if damage(err) {
					continue
				}
				// The last record of the log may be taken for a torn write.
				if inLog && len(log) < len(want.Log) {
					told = true
					require.Empty(t, storagetest.DiffLogs(want.Log[:len(log)], log), what)
					continue
				}
				require.Empty(t, storagetest.DiffLogs(want.Log, log), what)
				sn, err := sh.Snapshot()
				require.NoError(t, err)
				state, err := storagetest.ReadState(sn, m.Table, uint16(b))
				sn.Release()
				if m.Keyed && !damage(err) {
					require.Empty(t, storagetest.DiffStates(want.State, state), what)
				}
			}
		}
	}
	return told
}
