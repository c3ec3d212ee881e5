package objstoretest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
)

// Run shows that stores keep the contract of objstore.Store. open gives another store
// of the same place each time, as another process has; the place is empty at first and
// used up afterwards. large is the size of an object that is written in parts.
func Run(t *testing.T, open func(t *testing.T) objstore.Store, large int) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s *suite)
	}{
		{"Objects", objects},
		{"Missing", missing},
		{"Ranges", ranges},
		{"CreateRace", createRace},
		{"PutRace", putRace},
		{"Writers", writers},
		{"LargeObject", largeObject},
		{"List", list},
		{"ListMany", listMany},
		{"Keys", keys},
		{"Canceled", canceled},
		{"TwoStores", twoStores},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, &suite{Store: open(t), open: open, base: test.name + "/", large: large})
		})
	}
}

type suite struct {
	objstore.Store

	open  func(*testing.T) objstore.Store
	base  string // begins the keys of a test
	large int
}

func (s *suite) key(format string, args ...any) string { return s.base + fmt.Sprintf(format, args...) }

// get reads an object in both ways.
func (s *suite) get(t *testing.T, key string) []byte {
	t.Helper()
	body, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	info, err := s.Stat(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, key, info.Key)
	require.Equal(t, int64(len(body)), info.Bytes)
	require.False(t, info.Modified.IsZero())
	p := make([]byte, len(body))
	require.NoError(t, s.ReadAt(t.Context(), key, p, 0))
	require.Equal(t, body, p)
	return body
}

// listed are the keys that begin with prefix.
func (s *suite) listed(t *testing.T, prefix string) []string {
	t.Helper()
	var out []string
	require.NoError(t, s.List(t.Context(), prefix, func(i objstore.Info) error {
		out = append(out, i.Key)
		return nil
	}))
	return out
}

func noise(n int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	p := make([]byte, 0, n+8)
	for len(p) < n {
		p = binary.LittleEndian.AppendUint64(p, r.Uint64())
	}
	return p[:n]
}

// What was written is read back, whole, until something else takes its place or it is
// removed.
func objects(t *testing.T, s *suite) {
	ctx := t.Context()
	for i, n := range []int{0, 1, 4096, 1<<20 + 1} {
		key := s.key("n%d/object.bin", i)
		require.NoError(t, s.Put(ctx, key, noise(n)))
		require.True(t, bytes.Equal(noise(n), s.get(t, key)))
	}
	key := s.key("over")
	require.NoError(t, s.Create(ctx, key, []byte("one")))
	require.ErrorIs(t, s.Create(ctx, key, []byte("two")), objstore.ErrExists)
	require.Equal(t, "one", string(s.get(t, key)))
	// Equal bytes are no excuse.
	require.ErrorIs(t, s.Create(ctx, key, []byte("one")), objstore.ErrExists)
	require.NoError(t, s.Put(ctx, key, []byte("three")))
	require.Equal(t, "three", string(s.get(t, key)))
	require.ErrorIs(t, s.Create(ctx, key, nil), objstore.ErrExists)
	require.NoError(t, s.Remove(ctx, key))
	require.NoError(t, s.Create(ctx, key, nil))
	require.Empty(t, s.get(t, key))
	require.ErrorIs(t, s.Create(ctx, key, []byte("x")), objstore.ErrExists)
	require.Empty(t, s.get(t, key))
}

// What is not there says so, and is no error to remove.
func missing(t *testing.T, s *suite) {
	ctx := t.Context()
	require.NoError(t, s.Put(ctx, s.key("a/b"), []byte("b")))
	for _, key := range []string{s.key("none"), s.key("none/none"), s.key("a"), s.key("a/b/c"), s.key("a/bb")} {
		_, err := s.Get(ctx, key)
		require.ErrorIs(t, err, objstore.ErrNotExist, key)
		_, err = s.Stat(ctx, key)
		require.ErrorIs(t, err, objstore.ErrNotExist, key)
		require.ErrorIs(t, s.ReadAt(ctx, key, make([]byte, 1), 0), objstore.ErrNotExist, key)
		require.ErrorIs(t, s.ReadAt(ctx, key, nil, 0), objstore.ErrNotExist, key)
		require.NoError(t, s.Remove(ctx, key), key)
	}
	require.Empty(t, s.listed(t, s.key("none")))
	require.Empty(t, s.listed(t, s.key("a/b/")))
	require.NoError(t, s.Remove(ctx))
	require.Equal(t, []string{s.key("a/b")}, s.listed(t, s.base))
	require.NoError(t, s.Remove(ctx, s.key("x"), s.key("a/b"), s.key("y")))
	require.Empty(t, s.listed(t, s.base))
}

// A range is read exactly, or not at all.
func ranges(t *testing.T, s *suite) {
	ctx, body, key := t.Context(), noise(300_000), s.key("object")
	require.NoError(t, s.Put(ctx, key, body))
	for _, at := range []struct{ off, n int }{{0, 1}, {0, 300_000}, {299_999, 1}, {17, 100_000}, {150_000, 150_000}, {0, 0}, {300_000, 0}} {
		p := make([]byte, at.n)
		require.NoError(t, s.ReadAt(ctx, key, p, int64(at.off)), at)
		require.True(t, bytes.Equal(body[at.off:at.off+at.n], p), at)
	}
	for _, at := range []struct{ off, n int }{{0, 300_001}, {299_999, 2}, {300_000, 1}, {1 << 40, 1}, {300_001, 0}} {
		require.ErrorIs(t, s.ReadAt(ctx, key, make([]byte, at.n), int64(at.off)), io.ErrUnexpectedEOF, at)
	}
	require.True(t, errs.Is(s.ReadAt(ctx, key, make([]byte, 1), -1), errs.InvalidValue))

	require.NoError(t, s.Put(ctx, s.key("empty"), nil))
	require.NoError(t, s.ReadAt(ctx, s.key("empty"), nil, 0))
	require.ErrorIs(t, s.ReadAt(ctx, s.key("empty"), make([]byte, 1), 0), io.ErrUnexpectedEOF)

	// Several at once.
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			p := make([]byte, 1000)
			if err := s.ReadAt(ctx, key, p, int64(i*10_000)); err != nil || !bytes.Equal(p, body[i*10_000:i*10_000+1000]) {
				t.Errorf("range %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

// O2: of 16 that create one key at once, through two stores, one does, and it is its
// object that is there; again after it was removed.
func createRace(t *testing.T, s *suite) {
	other := s.open(t)
	for round := range 10 {
		key := s.key("folder%d/object", round/2)
		var won [16]bool
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for i := range won {
			wg.Go(func() {
				from := s.Store
				if i%2 == 1 {
					from = other
				}
				<-begin
				err := from.Create(t.Context(), key, bytes.Repeat([]byte{byte('a' + i)}, 1+i*1000))
				won[i] = err == nil
				if err != nil && !errors.Is(err, objstore.ErrExists) {
					t.Errorf("create %d: %v", i, err)
				}
			})
		}
		close(begin)
		wg.Wait()
		i := slices.Index(won[:], true)
		require.GreaterOrEqual(t, i, 0, "nobody made it")
		require.False(t, slices.Contains(won[i+1:], true), "two made it: %v", won)
		require.Equal(t, bytes.Repeat([]byte{byte('a' + i)}, 1+i*1000), s.get(t, key))
		require.NoError(t, s.Remove(t.Context(), key))
	}
}

// O1: whoever reads while others write over an object reads one of them, whole.
func putRace(t *testing.T, s *suite) {
	key := s.key("object")
	version := func(i int) []byte {
		body := noise(50_000 + i)
		sum := sha256.Sum256(body)
		return append(body, sum[:]...)
	}
	require.NoError(t, s.Put(t.Context(), key, version(0)))
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for w := range 4 {
		writers.Go(func() {
			for i := range 10 {
				if err := s.Put(t.Context(), key, version(w*10+i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				body, err := s.Get(t.Context(), key)
				if err != nil {
					t.Error(err)
					return
				}
				cut := len(body) - sha256.Size
				if sum := sha256.Sum256(body[:cut]); !bytes.Equal(sum[:], body[cut:]) {
					t.Error("an object of two")
					return
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
}

// O1: a writer's object appears at Close, and never when it is given up.
func writers(t *testing.T, s *suite) {
	ctx := t.Context()
	for i, n := range []int{0, 1, 100_000} {
		key, body := s.key("w%d/object", i), noise(n)
		w, err := s.Writer(ctx, key)
		require.NoError(t, err)
		for at := 0; at < n; at += 777 {
			k, err := w.Write(body[at:min(n, at+777)])
			require.NoError(t, err)
			require.Equal(t, min(n-at, 777), k)
		}
		_, err = s.Get(ctx, key)
		require.ErrorIs(t, err, objstore.ErrNotExist)
		require.Empty(t, s.listed(t, s.key("w%d/", i)))
		require.NoError(t, w.Close())
		require.True(t, bytes.Equal(body, s.get(t, key)))
		w.Abort()
		require.True(t, bytes.Equal(body, s.get(t, key)))
		require.Error(t, w.Close(), "closed twice")
		_, err = w.Write([]byte("x"))
		require.Error(t, err, "written to after Close")
	}
	key := s.key("over")
	require.NoError(t, s.Put(ctx, key, []byte("old")))
	w, err := s.Writer(ctx, key)
	require.NoError(t, err)
	_, err = w.Write([]byte("new"))
	require.NoError(t, err)
	w.Abort()
	require.Error(t, w.Close())
	require.Equal(t, "old", string(s.get(t, key)))

	w, err = s.Writer(ctx, key)
	require.NoError(t, err)
	p := []byte("new")
	_, err = w.Write(p)
	require.NoError(t, err)
	copy(p, "XXX") // the writer has a copy
	require.NoError(t, w.Close())
	require.Equal(t, "new", string(s.get(t, key)))

	// Its context ends it as well.
	life, end := context.WithCancel(ctx)
	w, err = s.Writer(life, s.key("ended"))
	require.NoError(t, err)
	_, err = w.Write(noise(1000))
	require.NoError(t, err)
	end()
	require.ErrorIs(t, w.Close(), context.Canceled)
	require.Empty(t, s.listed(t, s.key("ended")))
}

// An object that is written in parts is like another one; given up in the middle, it is
// none, and it leaves the one before.
func largeObject(t *testing.T, s *suite) {
	ctx, body, key := t.Context(), noise(s.large), s.key("object")
	write := func(n int) objstore.Writer {
		w, err := s.Writer(ctx, key)
		require.NoError(t, err)
		for at := 0; at < n; {
			k, err := w.Write(body[at:min(n, at+100_003)])
			require.NoError(t, err)
			at += k
		}
		return w
	}
	write(len(body) * 3 / 4).Abort()
	require.Empty(t, s.listed(t, s.base))
	require.NoError(t, write(len(body)).Close())
	require.True(t, bytes.Equal(body, s.get(t, key)))
	p := make([]byte, 100_000)
	off := len(body)/2 - 50_000
	require.NoError(t, s.ReadAt(ctx, key, p, int64(off)))
	require.True(t, bytes.Equal(body[off:off+100_000], p))
	write(len(body) / 2).Abort()
	require.True(t, bytes.Equal(body, s.get(t, key)))
	require.Equal(t, []string{key}, s.listed(t, s.base))
}

// Keys rise by their bytes, whatever folders they are in; a prefix may end anywhere.
func list(t *testing.T, s *suite) {
	ctx := t.Context()
	var all []string
	for _, k := range []string{"a", "a-b", "a.b", "a0", "aa", "b/a", "b-a/x", "b.a/x", "b0/x", "b/a.b/c", "b/aa", "b=1/c/d/e/f", "B", "_z", "0", "c/c/c"} {
		all = append(all, s.key("%s", k))
		require.NoError(t, s.Put(ctx, s.key("%s", k), []byte(k)))
	}
	slices.Sort(all)
	for _, prefix := range []string{"", "a", "a-", "b", "b/", "b/a", "b/a.", "b=1/c/", "c/c/c", "c/c/c/", "z", "b.a/x", ".", ".."} {
		var want []string
		for _, k := range all {
			if strings.HasPrefix(k, s.key("%s", prefix)) {
				want = append(want, k)
			}
		}
		require.Equal(t, want, s.listed(t, s.key("%s", prefix)), prefix)
	}
	require.Equal(t, all, s.listed(t, strings.TrimSuffix(s.base, "t/")))

	stop, seen := errors.New("enough"), 0
	err := s.List(ctx, s.base, func(i objstore.Info) error {
		require.Equal(t, int64(len(i.Key)-len(s.base)), i.Bytes)
		require.False(t, i.Modified.IsZero())
		if seen++; seen == 3 {
			return stop
		}
		return nil
	})
	require.Equal(t, stop, err)
	require.Equal(t, 3, seen)
	// What is given may be removed at once.
	require.NoError(t, s.List(ctx, s.base, func(i objstore.Info) error { return s.Remove(ctx, i.Key) }))
	require.Empty(t, s.listed(t, s.base))
}

// More keys than a page of S3 has are listed once each, and removed in one call.
func listMany(t *testing.T, s *suite) {
	const n = 1203
	var want []string
	var wg sync.WaitGroup
	gate := make(chan struct{}, 16)
	for i := range n {
		key := s.key("f%d/o%04d", i%3, i)
		want = append(want, key)
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			if err := s.Put(t.Context(), key, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	slices.Sort(want)
	require.Equal(t, want, s.listed(t, s.base))
	require.NoError(t, s.Remove(t.Context(), want[1:]...))
	require.Equal(t, want[:1], s.listed(t, s.base))
}

// H3: nothing but a key is taken for one, so none leads out of the store.
func keys(t *testing.T, s *suite) {
	ctx := t.Context()
	segment := strings.Repeat("s", 255)
	// versitygw 1.8 overwrites no object whose last segment has more than about 220 bytes, since
	// it makes a longer name of it first; an answer that is lost makes that of any put.
	longest := strings.Repeat(segment+"/", 2) + s.key("%s/%s", strings.Repeat("k", 127-len(s.base)), strings.Repeat("k", 128))
	require.Len(t, longest, 768)
	for _, key := range []string{s.key("%s/s", segment), longest, s.key("A=b/.c/..d/e../-/_/...x"), s.key("v1.metadata.json")} {
		require.NoError(t, s.Put(ctx, key, []byte(key)))
		require.Equal(t, key, string(s.get(t, key)))
		require.Equal(t, []string{key}, s.listed(t, key))
	}
	for _, key := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", "a/./b", "./a", "a/.", "a\x00b", "a b", "a*", "a>b", "a%2fb", "ä", "a\\b", "a\nb", "~tmp", "~tmp/a", "a?b", "a#b", "a+b", "a:b",
		segment + "s", longest + "k", strings.Repeat("a/", 32<<10) + "a", "\xff",
	} {
		require.True(t, errs.Is(s.Put(ctx, key, nil), errs.InvalidValue), "%.40q", key)
		require.True(t, errs.Is(s.Create(ctx, key, nil), errs.InvalidValue), "%.40q", key)
		require.True(t, errs.Is(s.Remove(ctx, s.key("v1.metadata.json"), key), errs.InvalidValue), "%.40q", key)
		_, err := s.Writer(ctx, key)
		require.True(t, errs.Is(err, errs.InvalidValue), "%.40q", key)
		_, err = s.Get(ctx, key)
		require.True(t, errs.Is(err, errs.InvalidValue), "%.40q", key)
		_, err = s.Stat(ctx, key)
		require.True(t, errs.Is(err, errs.InvalidValue), "%.40q", key)
		require.True(t, errs.Is(s.ReadAt(ctx, key, make([]byte, 1), 0), errs.InvalidValue), "%.40q", key)
	}
	require.Equal(t, s.key("v1.metadata.json"), string(s.get(t, s.key("v1.metadata.json"))), "removed beside a key that is none")
	for _, prefix := range []string{"/", "../", "a/../", "a//", "./", "~", "a\x00", "*", segment + "s", "a b"} {
		err := s.List(ctx, prefix, func(objstore.Info) error { return errors.New("given") })
		require.True(t, errs.Is(err, errs.InvalidValue), "%.40q", prefix)
	}
}

// O4: a call whose context has ended says so.
func canceled(t *testing.T, s *suite) {
	key := s.key("object")
	require.NoError(t, s.Put(t.Context(), key, []byte("x")))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Get(ctx, key)
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Stat(ctx, key)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, s.ReadAt(ctx, key, make([]byte, 1), 0), context.Canceled)
	require.ErrorIs(t, s.Put(ctx, s.key("put"), nil), context.Canceled)
	require.ErrorIs(t, s.Create(ctx, s.key("create"), nil), context.Canceled)
	require.ErrorIs(t, s.Remove(ctx, key), context.Canceled)
	require.ErrorIs(t, s.List(ctx, s.base, func(objstore.Info) error { return nil }), context.Canceled)
	require.Equal(t, []string{key}, s.listed(t, s.base))
}

// What one store writes another one of the same place reads, and both have one address.
func twoStores(t *testing.T, s *suite) {
	other := &suite{Store: s.open(t), base: s.base}
	require.Equal(t, s.URI(), other.URI())
	require.False(t, strings.HasSuffix(s.URI(), "/"))
	require.NoError(t, s.Put(t.Context(), s.key("a"), []byte("a")))
	require.Equal(t, "a", string(other.get(t, s.key("a"))))
	require.ErrorIs(t, other.Create(t.Context(), s.key("a"), nil), objstore.ErrExists)
	require.NoError(t, other.Remove(t.Context(), s.key("a")))
	require.Empty(t, s.listed(t, s.base))
}
