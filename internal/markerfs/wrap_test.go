package markerfs

import (
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// quiet keeps Pebble's messages out of the test's output; what is fatal panics.
type quiet struct{}

func (quiet) Infof(format string, args ...any) {
	_, _ = fmt.Fprintf(io.Discard, format, args...)
}
func (q quiet) Errorf(format string, args ...any) { q.Infof(format, args...) }
func (quiet) Fatalf(format string, args ...any)   { panic(fmt.Sprintf(format, args...)) }

// At whatever file operation the power goes, and whichever half of the unsynced
// directory entries is kept, a store on a wrapped file system opens again.
func TestStoresOpenAfterAnyCrash(t *testing.T) {
	type crash struct {
		at int
		fs *vfs.MemFS
	}
	var crashes []crash
	mem := vfs.NewCrashableMem()
	if err := mem.MkdirAll("db", 0o700); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // Pebble has goroutines of its own
	operations := 0
	watch := errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			operations++
			for seed := range uint64(8) {
				rng := rand.New(rand.NewPCG(uint64(operations), seed))
				crashes = append(crashes, crash{operations, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng})})
			}
		}
		return nil
	})
	open := func(fs vfs.FS) error {
		db, err := pebble.Open("db", &pebble.Options{FS: fs, Logger: quiet{}, FormatMajorVersion: pebble.FormatWALSyncChunks})
		if err != nil {
			return err
		}
		return db.Close()
	}
	for range 3 {
		if err := open(Wrap(errorfs.Wrap(mem, watch))); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range crashes {
		if err := open(c.fs); err != nil {
			t.Errorf("crash at operation %d of %d: %v", c.at, operations, err)
		}
	}
}
