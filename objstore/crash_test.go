package objstore_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
)

// crashes runs a workload on a folder and has a look at what would be left, were there
// a power cut before any one of its file operations.
type crashes struct {
	t   *testing.T
	mem *vfs.MemFS
	s   objstore.Store
	rng *rand.Rand

	acked map[string]string // what is there, as far as was acknowledged
	key   string            // of the call under way
	may   []string          // what it may leave there
	cuts  int
}

const absent = "\x00absent"

// do makes a call that leaves a key with some content.
func (c *crashes) do(key, content string, call func() error) {
	before, ok := c.acked[key]
	if !ok {
		before = absent
	}
	c.key, c.may = key, []string{before, content}
	require.NoError(c.t, call())
	c.acked[key], c.key = content, ""
}

// cut checks what a power cut at this moment would leave.
func (c *crashes) cut() {
	for _, percent := range []int{0, 50, 100} {
		left := c.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: c.rng})
		s, err := objstore.Open(c.t.Context(), c.s.URI(), objstore.Options{FS: left})
		require.NoError(c.t, err)
		got := map[string]string{}
		require.NoError(c.t, s.List(c.t.Context(), "", func(i objstore.Info) error {
			body, err := s.Get(c.t.Context(), i.Key)
			got[i.Key] = string(body)
			return err
		}))
		keys := maps.Clone(c.acked)
		maps.Copy(keys, got)
		if c.key != "" {
			keys[c.key] = ""
		}
		for key := range keys {
			want := []string{absent}
			if acked, ok := c.acked[key]; ok {
				want[0] = acked
			}
			if key == c.key {
				want = c.may
			}
			is, ok := got[key]
			if !ok {
				is = absent
			}
			require.Contains(c.t, want, is, "%s, %d%% of what was not synced", key, percent)
		}
	}
	c.cuts++
}

// O1: a power cut at any moment leaves each object as it was acknowledged; that of the
// call under way as before or after it. A sync of a file or of a folder that is left out
// fails this.
func TestFolderSurvivesPowerCuts(t *testing.T) {
	c := &crashes{t: t, mem: vfs.NewCrashableMem(), rng: rand.New(rand.NewPCG(7, 7)), acked: map[string]string{}}
	fs := errorfs.Wrap(c.mem, errorfs.InjectorFunc(func(errorfs.Op) error {
		c.cut()
		return nil
	}))
	var err error
	c.s, err = objstore.Open(t.Context(), "file:///srv/lake", objstore.Options{FS: fs})
	require.NoError(t, err)
	ctx := t.Context()
	for i := range 3 {
		key := fmt.Sprintf("t/%d/data", i)
		c.do(key, "one", func() error { return c.s.Create(ctx, key, []byte("one")) })
		c.do(key, "two", func() error { return c.s.Put(ctx, key, []byte("two")) })
		c.do(key+"2", "long", func() error {
			w, err := c.s.Writer(ctx, key+"2")
			require.NoError(t, err)
			_, err = w.Write([]byte("lo"))
			require.NoError(t, err)
			_, err = w.Write([]byte("ng"))
			require.NoError(t, err)
			return w.Close()
		})
		c.do(key, absent, func() error { return c.s.Remove(ctx, key) })
		c.do(key, "three", func() error { return c.s.Create(ctx, key, []byte("three")) })
	}
	c.cut()
	require.Greater(t, c.cuts, 100)
}

// Whichever file operation fails, the caller hears of it, what was there before is
// there or the new one is, and the next call finds a store that works.
func TestFolderWithFailingDisk(t *testing.T) {
	for _, disk := range []struct {
		err  error
		code errs.Code
	}{{syscall.EIO, errs.Unavailable}, {syscall.ENOSPC, errs.StorageFull}} {
		for k := 0; ; k++ {
			mem := vfs.NewMem()
			n, fail := 0, false
			fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(errorfs.Op) error {
				n++
				if fail && n == k+1 {
					return disk.err
				}
				return nil
			}))
			s, err := objstore.Open(t.Context(), "file:///srv/lake", objstore.Options{FS: fs})
			require.NoError(t, err)
			require.NoError(t, s.Put(t.Context(), "a/old", []byte("old")))
			n, fail = 0, true
			errPut := s.Put(t.Context(), "a/old", []byte("new"))
			errCreate := s.Create(t.Context(), "b/new", []byte("created"))
			body, errGet := s.Get(t.Context(), "a/old")
			last := n <= k
			fail = false
			for _, err := range []error{errPut, errCreate, errGet} {
				if err != nil {
					require.True(t, errs.Is(err, disk.code), "operation %d: %v", k, err)
				}
			}
			if errGet == nil {
				require.Contains(t, []string{"old", "new"}, string(body))
			}
			is, err := s.Get(t.Context(), "a/old")
			require.NoError(t, err)
			if errPut == nil {
				require.Equal(t, "new", string(is))
			}
			_, err = s.Get(t.Context(), "b/new")
			if errCreate == nil {
				require.NoError(t, err)
			} else if err == nil {
				require.ErrorIs(t, s.Create(t.Context(), "b/new", nil), objstore.ErrExists)
			} else {
				require.ErrorIs(t, err, objstore.ErrNotExist)
				require.NoError(t, s.Create(t.Context(), "b/new", nil))
			}
			if last {
				require.NoError(t, errors.Join(errPut, errCreate, errGet))
				require.Greater(t, k, 20)
				break
			}
		}
	}
}
