package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// failNth fails the nth operation that changes a file, and all after it, as a
// disk does that has gone.
type failNth struct {
	n    int64
	seen atomic.Int64
}

func (f *failNth) String() string { return fmt.Sprintf("fail from %d", f.n) }

func (f *failNth) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && f.seen.Add(1) > f.n {
		return errorfs.ErrInjected
	}
	return nil
}

// workload makes changes until one fails, and returns what was acknowledged: the
// tables and partitions that are there, and the one that may or may not be, as
// things tells them.
func workload(c *Catalog) (acked map[string]bool, unsure string, err error) {
	ctx := context.Background()
	acked = map[string]bool{}
	if _, err := c.CreateDatabase(ctx, "d", ""); err != nil {
		return acked, "", err
	}
	for i := range 3 {
		name := fmt.Sprint("t", i)
		if _, _, err := c.CreateTable(ctx, "d", keyed(name, 2), false); err != nil {
			return acked, name, err
		}
		acked[name] = true
		if i%2 == 1 {
			if _, err := c.DropTable(ctx, millrace.TablePath{Database: "d", Table: name}, false, false); err != nil {
				delete(acked, name)
				return acked, name, err
			}
			delete(acked, name)
		}
	}
	return partitionWorkload(ctx, c, acked)
}

// partitionWorkload goes on with partitions, an ALTER and ids.
func partitionWorkload(ctx context.Context, c *Catalog, acked map[string]bool) (map[string]bool, string, error) {
	spec := Spec{Name: "p", Columns: cols("dt", "STRING", "v", "INT"), PartitionBy: []string{"dt"}}
	table, _, err := c.CreateTable(ctx, "d", spec, false)
	if err != nil {
		return acked, "p", err
	}
	acked["p"] = true
	for i := range 2 {
		p, _, err := c.EnsurePartition(ctx, table.ID, []string{fmt.Sprint(i)})
		if err != nil {
			return acked, fmt.Sprint("p/dt=", i), err
		}
		acked["p/"+p.Name] = true
		if i == 1 {
			if _, err := c.RemovePartition(ctx, table.ID, p.ID); err != nil {
				delete(acked, "p/"+p.Name)
				return acked, "p/" + p.Name, err
			}
			delete(acked, "p/"+p.Name)
		}
	}
	if _, err := c.AlterTable(ctx, table.Path, []AlterStep{{Op: RenameColumn, Name: "v", To: "w"}}, nil); err != nil {
		return acked, "p.w", err
	}
	acked["p.w"] = true
	return acked, "", nil
}

// things are what workload made, as it names them.
func things(c *Catalog) map[string]bool {
	out := map[string]bool{}
	for _, table := range c.AllTables() {
		out[table.Path.Table] = true
		if table.Schema.Index("w") >= 0 {
			out["p.w"] = true
		}
		for _, p := range c.current.Load().partitions[table.ID].all() {
			out[table.Path.Table+"/"+p.Name] = true
		}
	}
	return out
}

// When the k-th file operation and all after it fail, and then the power goes with
// 0, 50 or 100 % of what was not synced kept, every change that was acknowledged is
// there after a restart, the one that was not is there whole or not at all, and the
// failing catalog says so and goes on answering reads.
func TestFailAndCrash(t *testing.T) {
	failed, completed := 0, 0
	for k := int64(0); completed == 0; k++ {
		mem := vfs.NewCrashableMem()
		makeDurable(t, mem, "data")
		inject := &failNth{n: k}
		opts := Options{Dir: "data/catalog", FS: errorfs.Wrap(mem, inject), Logger: slog.New(slog.DiscardHandler), Clock: func() time.Time { return testTime }}
		acked, unsure := map[string]bool{}, ""
		c, err := Open(context.Background(), opts)
		if err == nil {
			acked, unsure, err = workload(c)
			if err != nil {
				if !errs.Is(err, errs.UnknownOutcome) {
					t.Errorf("operation %d: %v", k, err)
				}
				if c.Err() == nil {
					t.Errorf("operation %d: the catalog does not say that it failed", k)
				}
				if _, err := c.CreateDatabase(context.Background(), "later", ""); !errs.Is(err, errs.Unavailable) {
					t.Errorf("operation %d: a change after the failure: %v", k, err)
				}
				got := things(c)
				delete(got, unsure)
				if d := cmp.Diff(acked, got); d != "" {
					t.Errorf("operation %d: read after the failure (-acknowledged +there):\n%s", k, d)
				}
			}
		}
		if err == nil {
			completed++
		} else {
			failed++
		}
		for _, percent := range []int{0, 50, 100} {
			after := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(uint64(k), 1))})
			checkAfterCrash(t, fmt.Sprintf("operation %d, %d%% kept", k, percent), after, acked, unsure)
		}
		if c != nil {
			if err := c.Close(); err != nil && inject.seen.Load() <= k {
				t.Error(err)
			}
		}
	}
	if failed < 20 {
		t.Errorf("only %d runs failed", failed)
	}
}

func makeDurable(t *testing.T, fs vfs.FS, dir string) {
	t.Helper()
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := fs.OpenDir("")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(root.Sync(), root.Close()); err != nil {
		t.Fatal(err)
	}
}

func checkAfterCrash(t *testing.T, when string, fs vfs.FS, acked map[string]bool, unsure string) {
	t.Helper()
	c, err := Open(context.Background(), Options{Dir: "data/catalog", FS: fs, Logger: slog.New(slog.DiscardHandler), Clock: func() time.Time { return testTime }})
	if err != nil {
		t.Errorf("%s: %v", when, err)
		return
	}
	defer c.Close()
	got := things(c)
	delete(got, unsure)
	if d := cmp.Diff(acked, got); d != "" {
		t.Errorf("%s (-acknowledged +there, without %q):\n%s", when, unsure, d)
	}
}

// Whatever one byte of the catalog's files is changed, opening it fails with
// corrupt_data and names the directory, or everything is there.
func TestFlippedBytes(t *testing.T) {
	fs := vfs.NewMem()
	open := func(fs vfs.FS) (*Catalog, error) {
		return Open(t.Context(), Options{Dir: "flipped", FS: fs, Logger: slog.New(slog.DiscardHandler), Clock: func() time.Time { return testTime }})
	}
	c, err := open(fs)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := workload(c); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	// Opened once more, what was in the log is in a table file, so that both kinds
	// of files hold data.
	if c, err = open(fs); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateDatabase(t.Context(), "last", ""); err != nil {
		t.Fatal(err)
	}
	want := describe(t, c)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}

	files := readFiles(t, fs, "flipped")
	counts := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		whole := files[name]
		if strings.HasPrefix(name, "OPTIONS") || name == "LOCK" {
			continue // holds no data
		}
		end := len(bytes.TrimRight(whole, "\x00")) // the rest is preallocated
		rng := rand.New(rand.NewPCG(1, 2))
		for range min(end, 150) {
			at := rng.IntN(end)
			bad := bytes.Clone(whole)
			bad[at] ^= 1 << rng.IntN(8)
			opened, err := open(memOf(t, "flipped", files, name, bad))
			if err != nil {
				if !errs.Is(err, errs.CorruptData) || !strings.Contains(err.Error(), "flipped") {
					t.Errorf("%s, byte %d: %v", name, at, err)
				}
				counts["refused"]++
				continue
			}
			counts["harmless"]++
			if d := cmp.Diff(want, describe(t, opened)); d != "" {
				t.Errorf("%s, byte %d of %d, goes unnoticed:\n%s", name, at, len(whole), d)
			}
			if err := opened.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Log(counts)
	if counts["refused"] < 300 {
		t.Errorf("only %d flips were refused", counts["refused"])
	}
}

// readFiles is the contents of the files in dir, by name.
func readFiles(t *testing.T, fs vfs.FS, dir string) map[string][]byte {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, name := range names {
		f, err := fs.Open(fs.PathJoin(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if out[name], err = io.ReadAll(f); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// memOf is a file system in memory with these files in dir, but one with other
// contents.
func memOf(t *testing.T, dir string, files map[string][]byte, but string, contents []byte) vfs.FS {
	t.Helper()
	fs := vfs.NewMem()
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, b := range files {
		if name == but {
			b = contents
		}
		f, err := fs.Create(fs.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return fs
}

func copyDir(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// conflictingKV lets another process change the catalog before some commits.
type conflictingKV struct {
	KV

	before func() // nil: nothing happens
}

func (kv *conflictingKV) Commit(ctx context.Context, expect uint64, writes ...Write) (uint64, error) {
	if f := kv.before; f != nil {
		f()
	}
	return kv.KV.Commit(ctx, expect, writes...)
}

// A change that meets another process's change is decided again on what that one
// left: both take effect, ids differ, and a name that was taken meanwhile is refused.
func TestConflicts(t *testing.T) {
	store := mustOpenKV(t, vfs.NewMem())
	opts := Options{Logger: slog.New(slog.DiscardHandler), Clock: func() time.Time { return testTime }}
	ours := &conflictingKV{KV: store}
	a, err := OpenKV(t.Context(), ours, opts)
	if err != nil {
		t.Fatal(err)
	}
	b, err := OpenKV(t.Context(), store, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if a.ClusterID() != b.ClusterID() {
		t.Error("two cluster ids")
	}
	meanwhile := func(name string) {
		ours.before = func() {
			ours.before = nil
			if _, err := b.CreateDatabase(context.Background(), name, ""); err != nil {
				t.Error(err)
			}
		}
	}
	meanwhile("b1")
	da, err := a.CreateDatabase(t.Context(), "a1", "")
	if err != nil || da.ID != 2 {
		t.Errorf("%+v, %v", da, err)
	}
	if _, err := a.Database(t.Context(), "b1"); err != nil {
		t.Error(err)
	}
	meanwhile("taken")
	if _, err := a.CreateDatabase(t.Context(), "taken", ""); !errs.Is(err, errs.DatabaseAlreadyExists) {
		t.Errorf("a name taken meanwhile: %v", err)
	}
	// Another process that never stops is given up on.
	n := 0
	ours.before = func() {
		n++
		if _, err := b.CreateDatabase(context.Background(), fmt.Sprint("n", n), ""); err != nil {
			t.Error(err)
		}
	}
	if _, err := a.CreateDatabase(t.Context(), "never", ""); !errs.Is(err, errs.Unavailable) || n != maxConflicts {
		t.Errorf("after %d conflicts: %v", n, err)
	}
}

// A catalog that a newer release wrote is refused as such, not as damage.
func TestNewerRelease(t *testing.T) {
	for name, write := range map[string]func(head headRecord) Write{
		"feature level": func(head headRecord) Write {
			head.FeatureLevel = FeatureNewest + 1
			return Write{Key: keyHead, Value: encodeRecord(head)}
		},
		"kind of key": func(headRecord) Write { return Write{Key: "later/1", Value: []byte("{}")} },
	} {
		fs := vfs.NewMem()
		opts := Options{Dir: "kv", FS: fs, Logger: slog.New(slog.DiscardHandler), Clock: func() time.Time { return testTime }}
		c, err := Open(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		s := c.current.Load()
		head := Write{Key: keyHead, Value: encodeRecord(s.head)}
		w := write(s.head)
		writes := []Write{head, w}
		if w.Key == keyHead {
			writes = []Write{w}
		}
		if _, err := c.kv.Commit(t.Context(), s.headRevision, writes...); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), opts); !errs.Is(err, errs.NotImplemented) || !strings.Contains(err.Error(), "newer release") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A catalog that another process has open, or that cannot be reached, is not
// called damaged.
func TestNotDamaged(t *testing.T) {
	fs := vfs.NewMem()
	kv := mustOpenKV(t, fs)
	defer kv.Close()
	if _, err := openPebble(fs, "kv", slog.New(slog.DiscardHandler)); !errs.Is(err, errs.Unavailable) {
		t.Errorf("opened twice: %v", err)
	}
	_, err := openPebble(errorfs.Wrap(vfs.NewMem(), &failNth{}), "kv", slog.New(slog.DiscardHandler))
	if err == nil || errs.Is(err, errs.CorruptData) {
		t.Errorf("unreachable: %v", err)
	}
}
