package catalog

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/errs"
)

// Signing keys are made when first asked for, change after a day, are accepted for
// one more life, never come again, and outlive a restart.
func TestSigningKeys(t *testing.T) {
	tc := openMem(t)
	keys := func() []SigningKey {
		t.Helper()
		k, err := tc.SigningKeys(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	first := keys()
	if len(first) != 1 || first[0].ID != 1 || first[0].Secret == [32]byte{} || !first[0].CreatedAt.Equal(testTime) {
		t.Fatalf("first keys %+v", first)
	}
	tc.now = testTime.Add(SigningKeyLife - time.Second)
	tc.reopen(t)
	if again := keys(); len(again) != 1 || again[0] != first[0] {
		t.Errorf("keys after a restart within the day: %+v", again)
	}
	tc.now = testTime.Add(SigningKeyLife)
	second := keys()
	if len(second) != 2 || second[0].ID != 2 || second[0].Secret == first[0].Secret || second[1] != first[0] {
		t.Fatalf("keys on the second day %+v", second)
	}
	tc.now = tc.now.Add(-3 * time.Hour) // a clock that was set back changes nothing
	if back := keys(); len(back) != 2 || back[0] != second[0] {
		t.Errorf("keys after the clock went back %+v", back)
	}
	tc.now = testTime.Add(10 * SigningKeyLife)
	third := keys()
	if len(third) != 2 || third[0].ID != 3 || third[1] != second[0] {
		t.Fatalf("keys after a pause %+v", third)
	}
	tc.reopen(t)
	if after := keys(); len(after) != 2 || after[0] != third[0] || after[1] != third[1] {
		t.Errorf("keys after reopening %+v", after)
	}
}

// Callers that meet at the end of a key's life get the same new key.
func TestSigningKeysRace(t *testing.T) {
	tc := openMem(t)
	before := tc.Revision()
	ids := make(chan uint32, 16)
	var wg sync.WaitGroup
	for range cap(ids) {
		wg.Go(func() {
			if k, err := tc.SigningKeys(context.Background()); err == nil {
				ids <- k[0].ID
			}
		})
	}
	wg.Wait()
	if len(ids) != cap(ids) {
		t.Fatalf("%d answers", len(ids))
	}
	for range cap(ids) {
		if id := <-ids; id != 1 {
			t.Errorf("key %d", id)
		}
	}
	if got := tc.Revision(); got != before+1 {
		t.Errorf("%d changes for one key", got-before)
	}
}

// failingKV refuses commits while told to.
type failingKV struct {
	KV

	fail  bool
	tries int
}

func (kv *failingKV) Commit(ctx context.Context, expect uint64, writes ...Write) (uint64, error) {
	if kv.fail {
		kv.tries++
		return 0, errs.New(errs.Unavailable, "told to")
	}
	return kv.KV.Commit(ctx, expect, writes...)
}

// A store that cannot take a new key does not stop signing, is not asked at every
// signature, and gets the new key when it is back.
func TestSigningKeysOutliveTheStore(t *testing.T) {
	now := testTime
	kv := &failingKV{KV: mustOpenKV(t, vfs.NewMem()), fail: false}
	c, err := OpenKV(t.Context(), kv, Options{Logger: slog.New(slog.DiscardHandler), Clock: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	kv.fail = true
	if _, err := c.SigningKeys(t.Context()); !errs.Is(err, errs.Unavailable) {
		t.Errorf("without any key: %v", err)
	}
	kv.fail = false
	first, err := c.SigningKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kv.fail, kv.tries = true, 0
	now = now.Add(25 * time.Hour)
	for range 5 {
		if k, err := c.SigningKeys(t.Context()); err != nil || k[0] != first[0] {
			t.Errorf("%+v, %v", k, err)
		}
	}
	if kv.tries != 1 {
		t.Errorf("the store was asked %d times", kv.tries)
	}
	kv.fail = false
	now = now.Add(signingRetry)
	if k, err := c.SigningKeys(t.Context()); err != nil || k[0].ID != 2 {
		t.Errorf("%+v, %v", k, err)
	}
}
