package auth

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/errs"
)

type fixture struct {
	*Signer

	now  time.Time
	keys []Key
	err  error
}

func newFixture() *fixture {
	f := &fixture{now: time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC), keys: []Key{{ID: 7, Secret: [32]byte{1, 2, 3}}, {ID: 6, Secret: [32]byte{9}}}}
	f.Signer = f.signer("ticket")
	return f
}

func (f *fixture) signer(purpose string) *Signer {
	return NewSigner(Options{
		Purpose: purpose, Life: time.Hour,
		Keys:  func() ([]Key, error) { return f.keys, f.err },
		Clock: func() time.Time { return f.now },
	})
}

func (f *fixture) mustSign(t testing.TB, payload string) string {
	t.Helper()
	s, err := f.Sign([]byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What was signed is given back until its life ends, under the newest key, in
// characters that need no escaping anywhere.
func TestSignAndVerify(t *testing.T) {
	f := newFixture()
	for _, payload := range []string{"", "x", strings.Repeat("payload", 1000), string([]byte{0, 255, 128})} {
		s := f.mustSign(t, payload)
		if strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Errorf("%q has other characters", s)
		}
		if got, err := f.Verify(s); err != nil || string(got) != payload {
			t.Errorf("%q, %v", got, err)
		}
	}
	s := f.mustSign(t, "x")
	f.now = f.now.Add(time.Hour - time.Millisecond)
	if _, err := f.Verify(s); err != nil {
		t.Error(err)
	}
	f.now = f.now.Add(time.Millisecond)
	if _, err := f.Verify(s); !errs.Is(err, errs.TicketExpired) {
		t.Errorf("after its life: %v", err)
	}
}

// The layout is the documented one, built here by hand.
func TestLayout(t *testing.T) {
	f := newFixture()
	body := []byte{1, 0, 0, 0, 7}
	body = binary.BigEndian.AppendUint64(body, uint64(f.now.Add(time.Hour).UnixMilli()))
	body = append(body, "hello"...)
	mac := hmac.New(sha256.New, f.keys[0].Secret[:])
	mac.Write(append([]byte("\x00\x00\x00\x06ticket"), body...))
	want := base64.RawURLEncoding.EncodeToString(mac.Sum(body))
	if got := f.mustSign(t, "hello"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A changed bit anywhere, a cut, an addition, another purpose, another cluster's
// key and plain garbage are all refused in the same words.
func TestTampering(t *testing.T) {
	f := newFixture()
	s := f.mustSign(t, "secret plan")
	refused := func(what, purpose, signed string) {
		t.Helper()
		_, err := f.signer(purpose).Verify(signed)
		if !errs.Is(err, errs.InvalidValue) || err.Error() != "the "+purpose+" is not one that this cluster made" {
			t.Errorf("%s: %v", what, err)
		}
	}
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		for bit := range 8 {
			bad := bytes.Clone(raw)
			bad[i] ^= 1 << bit
			if _, err := f.Verify(base64.RawURLEncoding.EncodeToString(bad)); err == nil {
				t.Fatalf("byte %d, bit %d goes through", i, bit)
			}
		}
	}
	for i := range s {
		refused("cut", "ticket", s[:i])
	}
	refused("added to", "ticket", s+"A")
	refused("padded", "ticket", s+"==")
	refused("with a line end", "ticket", s[:10]+"\n"+s[10:])
	refused("other purpose", "page_token", s)
	refused("garbage", "ticket", "%%%")
	refused("huge", "ticket", strings.Repeat("A", 10<<20))
	// The last character of base64url can be spelled several ways; only one is taken.
	spellings := 0
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
		if _, err := f.Verify(s[:len(s)-1] + string(c)); err == nil {
			spellings++
		}
	}
	if spellings != 1 {
		t.Errorf("%d spellings of one ticket", spellings)
	}
	f.keys = []Key{{ID: 7, Secret: [32]byte{42}}}
	refused("other cluster", "ticket", s)
}

// The key before the newest is accepted; what an older one signed has expired; an
// id that no key had yet is not ours.
func TestRotation(t *testing.T) {
	f := newFixture()
	s := f.mustSign(t, "x")
	f.keys = []Key{{ID: 8, Secret: [32]byte{8}}, f.keys[0]}
	if _, err := f.Verify(s); err != nil {
		t.Errorf("after one rotation: %v", err)
	}
	f.keys = []Key{{ID: 9, Secret: [32]byte{9}}, f.keys[0]}
	if _, err := f.Verify(s); !errs.Is(err, errs.TicketExpired) {
		t.Errorf("after two rotations: %v", err)
	}
	f.keys = []Key{{ID: 5, Secret: [32]byte{9}}}
	if _, err := f.Verify(s); !errs.Is(err, errs.InvalidValue) {
		t.Errorf("key of the future: %v", err)
	}
}

// A payload that is too large is refused; a missing key is passed on.
func TestSignErrors(t *testing.T) {
	f := newFixture()
	if _, err := f.Sign(make([]byte, MaxPayload+1)); !errs.Is(err, errs.TooLarge) {
		t.Error(err)
	}
	s, err := f.Sign(make([]byte, MaxPayload))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Verify(s); err != nil {
		t.Error(err)
	}
	f.err = errs.New(errs.Unavailable, "no keys")
	if _, err := f.Sign(nil); !errors.Is(err, f.err) || !errs.Is(err, errs.Unavailable) {
		t.Error(err)
	}
	if _, err := f.Verify(s); !errs.Is(err, errs.Unavailable) {
		t.Error(err)
	}
}

// No string makes Verify panic, and one that is taken is one that was signed.
func FuzzVerify(f *testing.F) {
	fx := newFixture()
	s := fx.mustSign(f, "payload")
	f.Add("ticket", s)
	f.Add("", "AQ")
	f.Fuzz(func(t *testing.T, purpose, signed string) {
		if _, err := fx.signer(purpose).Verify(signed); err == nil && (signed != s || purpose != "ticket") {
			t.Fatal("forged")
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	f := newFixture()
	s := f.mustSign(b, strings.Repeat("x", 300))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Verify(s); err != nil {
			b.Fatal(err)
		}
	}
}
