package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/errs"
)

const (
	// MaxLife is the longest life of a signed string.
	MaxLife = 24 * time.Hour
	// MaxPayload is the longest payload.
	MaxPayload = 48 << 10
)

// Key is a key that signs, or has lately.
type Key struct {
	ID     uint32 // rises from one key to the next
	Secret [32]byte
}

// Keys returns the accepted keys, newest first; the first one signs. There is at
// least one when the error is nil.
type Keys func(ctx context.Context) ([]Key, error)

// Signer signs and verifies.
type Signer struct {
	keys  Keys
	clock func() time.Time
}

// NewSigner makes a Signer.
func NewSigner(keys Keys, clock func() time.Time) *Signer { return &Signer{keys: keys, clock: clock} }

// A signed string is unpadded base64url of, big endian:
//
//	+---------+--------+------------+---------+-------------------------------+
//	| version | key id | expires ms | payload | HMAC-SHA256                   |
//	| u8 = 1  |  u32   |    u64     | …       | 32 bytes, over length and     |
//	|         |        |            |         | text of the purpose, then all |
//	|         |        |            |         | before it                     |
//	+---------+--------+------------+---------+-------------------------------+
const (
	signedVersion = 1
	signedHeader  = 1 + 4 + 8
	signedMin     = signedHeader + sha256.Size
)

// Sign returns a string that Verify gives payload back for, with the same
// purpose, for the length of life. Purposes are constants of the caller.
func (s *Signer) Sign(ctx context.Context, purpose string, payload []byte, life time.Duration) (string, error) {
	if life <= 0 || life > MaxLife {
		panic(fmt.Sprintf("auth: a life of %v", life))
	}
	if len(payload) > MaxPayload {
		return "", errs.New(errs.TooLarge, "the %s would hold %d bytes; at most %d are allowed", purpose, len(payload), MaxPayload)
	}
	keys, err := s.keys(ctx)
	if err != nil {
		return "", fmt.Errorf("auth.Sign: %w", err)
	}
	b := make([]byte, 0, signedMin+len(payload))
	b = append(b, signedVersion)
	b = binary.BigEndian.AppendUint32(b, keys[0].ID)
	b = binary.BigEndian.AppendUint64(b, uint64(s.clock().Add(life).UnixMilli()))
	b = append(b, payload...)
	b = appendMAC(b, &keys[0], purpose, b)
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// Verify returns the payload of what Sign returned. A string that has expired is
// ticket_expired; one that was not signed by this cluster for this purpose is
// invalid_request.
func (s *Signer) Verify(ctx context.Context, purpose, signed string) ([]byte, error) {
	// The decoder skips line ends; a signed string has none.
	if len(signed) > base64.RawURLEncoding.EncodedLen(signedMin+MaxPayload) || strings.ContainsAny(signed, "\r\n") {
		return nil, notOurs(purpose)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(signed)
	if err != nil || len(b) < signedMin || b[0] != signedVersion {
		return nil, notOurs(purpose)
	}
	keys, err := s.keys(ctx)
	if err != nil {
		return nil, fmt.Errorf("auth.Verify: %w", err)
	}
	body, mac := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	id := binary.BigEndian.Uint32(b[1:])
	key := find(keys, id)
	if key == nil {
		if id < keys[len(keys)-1].ID {
			return nil, expired(purpose) // the key is gone, and so is every life it signed
		}
		return nil, notOurs(purpose)
	}
	var want [sha256.Size]byte
	if !hmac.Equal(mac, appendMAC(want[:0], key, purpose, body)) {
		return nil, notOurs(purpose)
	}
	if s.clock().UnixMilli() >= int64(binary.BigEndian.Uint64(b[5:])) {
		return nil, expired(purpose)
	}
	return body[signedHeader:], nil
}

func find(keys []Key, id uint32) *Key {
	for i := range keys {
		if keys[i].ID == id {
			return &keys[i]
		}
	}
	return nil
}

func appendMAC(dst []byte, key *Key, purpose string, body []byte) []byte {
	h := hmac.New(sha256.New, key.Secret[:])
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(purpose))))
	h.Write([]byte(purpose))
	h.Write(body)
	return h.Sum(dst)
}

func notOurs(purpose string) error {
	return errs.New(errs.InvalidRequest, "the %s is not one that this cluster made", purpose)
}

func expired(purpose string) error {
	return errs.New(errs.TicketExpired, "the %s has expired; ask for a new one", purpose)
}
