package catalog

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/errs"
)

const (
	// SigningKeyLife is how long a key signs.
	SigningKeyLife = 24 * time.Hour
	// signingKeysKept is how many keys are accepted: the one that signs and the one
	// before, so that what was signed last with it can live another SigningKeyLife.
	signingKeysKept = 2
	// signingRetry is how long a failed rotation is left alone.
	signingRetry = time.Minute
)

// SigningKey signs tickets and page tokens.
type SigningKey struct {
	ID        uint32 // rises; never reused
	Secret    [32]byte
	CreatedAt time.Time
}

// rotation keeps a failing store from being asked at every signature.
type rotation struct {
	mu      sync.Mutex
	retryAt time.Time
}

// SigningKeys returns the keys that are accepted, newest first; the first one
// signs. It makes the first key, and a new one when the newest has signed for
// SigningKeyLife. While a new one cannot be stored, the old ones go on.
func (c *Catalog) SigningKeys(ctx context.Context) ([]SigningKey, error) {
	if err := c.kv.Lease(ctx); err != nil {
		return nil, err
	}
	now := c.clock()
	keys := c.current.Load().signing.Keys
	if len(keys) > 0 && !keys[0].due(now) {
		return signingKeys(keys), nil
	}
	c.rotation.mu.Lock()
	defer c.rotation.mu.Unlock()
	keys = c.current.Load().signing.Keys // another caller may have made the new one
	if len(keys) > 0 && (!keys[0].due(now) || now.Before(c.rotation.retryAt)) {
		return signingKeys(keys), nil
	}
	err := c.rotateSigningKey(ctx, now)
	keys = c.current.Load().signing.Keys
	if err != nil && len(keys) > 0 {
		c.rotation.retryAt = now.Add(signingRetry)
		c.log.WarnContext(ctx, "signing key not rotated", slog.Any("err", err))
		err = nil
	}
	return signingKeys(keys), err
}

func (c *Catalog) rotateSigningKey(ctx context.Context, now time.Time) error {
	secret := make([]byte, len(SigningKey{}.Secret))
	if _, err := rand.Read(secret); err != nil {
		return errs.Wrap(errs.Internal, "catalog.SigningKeys", err)
	}
	return c.commit(ctx, func(s *snapshot) ([]Write, error) {
		id := uint32(1)
		if old := s.signing.Keys; len(old) > 0 {
			if !old[0].due(now) {
				return nil, nil // another process has just done it
			}
			id = old[0].ID + 1
		}
		keys := append([]signingKeyRecord{{ID: id, Secret: secret, CreatedMicros: now.UnixMicro()}}, s.signing.Keys...)
		s.signing = signingRecord{Keys: keys[:min(len(keys), signingKeysKept)]}
		return []Write{{Key: keySigning, Value: encodeRecord(s.signing)}}, nil
	})
}

func (k signingKeyRecord) due(now time.Time) bool {
	return now.Sub(time.UnixMicro(k.CreatedMicros)) >= SigningKeyLife
}

func signingKeys(records []signingKeyRecord) []SigningKey {
	out := make([]SigningKey, len(records))
	for i, r := range records {
		out[i] = SigningKey{ID: r.ID, CreatedAt: time.UnixMicro(r.CreatedMicros).UTC()}
		copy(out[i].Secret[:], r.Secret)
	}
	return out
}
