package catalog

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/errs"
)

func mustOpenKV(t testing.TB, fs vfs.FS) *pebbleKV {
	t.Helper()
	kv, err := openPebble(fs, "kv", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

func mustLoad(t testing.TB, kv KV) map[string]Entry {
	t.Helper()
	entries, _, err := kv.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(entries, func(a, b Entry) int { return bytes.Compare([]byte(a.Key), []byte(b.Key)) }) {
		t.Error("Load is not in key order")
	}
	out := map[string]Entry{}
	for _, e := range entries {
		out[e.Key] = e
	}
	return out
}

// What KV promises: all writes of a commit or none, revisions that rise also over
// reopening, and a refusal, without any effect, when the guard does not hold.
func TestKV(t *testing.T) {
	fs := vfs.NewMem()
	kv := mustOpenKV(t, fs)
	ctx := t.Context()
	w := func(k, v string) Write { return Write{Key: k, Value: []byte(v)} }

	r1, err := kv.Commit(ctx, 0, w("guard", "1"), w("a", ""), w("b", "x"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Entry{
		"guard": {"guard", []byte("1"), r1}, "a": {"a", []byte{}, r1}, "b": {"b", []byte("x"), r1},
	}
	if d := cmp.Diff(want, mustLoad(t, kv)); d != "" {
		t.Fatal(d)
	}
	for _, expect := range []uint64{0, r1 + 1} {
		_, err := kv.Commit(ctx, expect, w("guard", "2"), w("c", "y"))
		if c, ok := errors.AsType[*ConflictError](err); !ok || c.Key != "guard" || c.Got != r1 || c.Want != expect {
			t.Fatalf("expecting revision %d: %v", expect, err)
		}
	}
	if _, err := kv.Commit(ctx, 1, w("absent", "")); err == nil {
		t.Error("an absent key was taken to have revision 1")
	}
	if d := cmp.Diff(want, mustLoad(t, kv)); d != "" {
		t.Fatalf("after refused commits: %s", d)
	}

	r2, err := kv.Commit(ctx, r1, w("guard", "2"), Write{Key: "b"}, Write{Key: "never"}, w("a", "z"))
	if err != nil || r2 <= r1 {
		t.Fatalf("revision %d after %d, %v", r2, r1, err)
	}
	want = map[string]Entry{"guard": {"guard", []byte("2"), r2}, "a": {"a", []byte("z"), r2}}
	if err := kv.Close(); err != nil {
		t.Fatal(err)
	}
	kv = mustOpenKV(t, fs)
	if d := cmp.Diff(want, mustLoad(t, kv)); d != "" {
		t.Fatalf("after reopening: %s", d)
	}
	// A deleted guard is absent, and later revisions stay above its own.
	r3, err := kv.Commit(ctx, r2, Write{Key: "guard"})
	if err != nil || r3 <= r2 {
		t.Fatal(r3, err)
	}
	if r4, err := kv.Commit(ctx, 0, w("guard", "3")); err != nil || r4 <= r3 {
		t.Fatal(r4, err)
	}

	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := kv.Commit(cancelled, 0, w("d", "")); !errs.Is(err, errs.Unavailable) {
		t.Errorf("cancelled: %v", err)
	}
	if err := errors.Join(kv.Close(), kv.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Commit(ctx, 0, w("d", "")); !errs.Is(err, errs.Draining) {
		t.Errorf("closed: %v", err)
	}
}

// Of commits that race on one guard exactly one wins a round.
func TestKVRace(t *testing.T) {
	kv := mustOpenKV(t, vfs.NewMem())
	defer kv.Close()
	var revision uint64
	for range 20 {
		var wg sync.WaitGroup
		won := make(chan uint64, 8)
		for range 8 {
			wg.Go(func() {
				r, err := kv.Commit(context.Background(), revision, Write{Key: "guard", Value: []byte("x")})
				if err == nil {
					won <- r
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("%d winners", len(won))
		}
		revision = <-won
	}
}

// A value that was changed anywhere, cut, or moved to another key is refused as
// damage, and one of a newer version as such; what was written is read back.
func TestValueDamage(t *testing.T) {
	payload := []byte(`{"id":1}`)
	whole := makeValue("table/1", 77, payload)
	if r, p, err := parseValue("table/1", whole); err != nil || r != 77 || !bytes.Equal(p, payload) {
		t.Fatal(r, p, err)
	}
	if _, _, err := parseValue("table/2", whole); !errs.Is(err, errs.CorruptData) {
		t.Errorf("under another key: %v", err)
	}
	for i := range whole {
		if _, _, err := parseValue("table/1", whole[:i]); !errs.Is(err, errs.CorruptData) {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
		for bit := range 8 {
			bad := bytes.Clone(whole)
			bad[i] ^= 1 << bit
			if _, _, err := parseValue("table/1", bad); !errs.Is(err, errs.CorruptData) {
				t.Errorf("byte %d, bit %d: %v", i, bit, err)
			}
		}
	}
	newer := makeValue("k", 1, nil)
	newer[2]++
	body := newer[:len(newer)-4]
	sum := valueChecksum("k", body)
	newer = append(body, byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
	if _, _, err := parseValue("k", newer); !errs.Is(err, errs.NotImplemented) {
		t.Errorf("newer version: %v", err)
	}
}

// Any bytes under any key, loaded as a catalog, give damage or a newer release,
// never a panic; and what loads is consistent enough to be listed.
func FuzzLoad(f *testing.F) {
	head := encodeRecord(headRecord{FeatureLevel: 1, ClusterID: "00112233445566778899aabbccddeeff", Shards: 4, NextDatabase: 2, NextTable: 2, NextPartition: 1})
	db := encodeRecord(databaseRecord{ID: 1, Name: "d"})
	table := encodeRecord(tableRecord{ID: 1, DatabaseID: 1, Name: "t", Kind: "keyed", SchemaID: 1, PrimaryKey: nil, Buckets: 1, Shards: nil})
	schema := []byte(`{"table_id":1,"schema":{"id":1,"columns":[{"id":1,"name":"a","type":{"kind":4}}]}}`)
	f.Add(head, db, schema, table, []byte(`{"keys":[]}`))
	f.Fuzz(func(t *testing.T, head, db, schema, table, signing []byte) {
		s, err := loadSnapshot([]Entry{
			{databaseKey(1), db, 1}, {keyHead, head, 1}, {schemaKey(1, 1), schema, 1}, {keySigning, signing, 1}, {tableKey(1), table, 1},
		})
		if err != nil {
			if c := errs.CodeOf(err); c != errs.CorruptData && c != errs.NotImplemented {
				t.Fatalf("%q: %v", c, err)
			}
			return
		}
		for _, d := range s.databases {
			for _, tb := range d.tables {
				_ = tb.Names(tb.PrimaryKey)
				_ = tb.BucketKey
			}
		}
	})
}

// Arbitrary bytes never make parseValue panic, and what it takes is what
// makeValue writes.
func FuzzParseValue(f *testing.F) {
	f.Add("head", makeValue("head", 3, []byte("{}")))
	f.Fuzz(func(t *testing.T, key string, b []byte) {
		r, p, err := parseValue(key, b)
		if err == nil && !bytes.Equal(makeValue(key, r, p), b) {
			t.Fatal("not written like this")
		}
	})
}
