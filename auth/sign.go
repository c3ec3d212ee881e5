package auth

import (
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

// Options make a Signer.
type Options struct {
	// Purpose is what is signed, in a word for messages; a constant of the program.
	Purpose string
	// Life is how long it is valid, at most MaxLife.
	Life time.Duration

	// Keys returns the accepted keys, newest first; the first one signs. There is at
	// least one when the error is nil.
	Keys  func() ([]Key, error)
	Clock func() time.Time
}

// Signer signs and verifies for one purpose.
type Signer struct{ o Options }

// NewSigner makes a Signer.
func NewSigner(o Options) *Signer {
	if o.Life <= 0 || o.Life > MaxLife {
		panic(fmt.Sprintf("auth: a life of %v", o.Life))
	}
	return &Signer{o: o}
}

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

// Sign returns a string that Verify gives payload back for.
func (s *Signer) Sign(payload []byte) (string, error) {
	if len(payload) > MaxPayload {
		return "", errs.New(errs.TooLarge, "the %s would hold %d bytes; at most %d are allowed", s.o.Purpose, len(payload), MaxPayload)
	}
	keys, err := s.o.Keys()
	if err != nil {
		return "", fmt.Errorf("auth.Sign: %w", err)
	}
	b := make([]byte, 0, signedMin+len(payload))
	b = append(b, signedVersion)
	b = binary.BigEndian.AppendUint32(b, keys[0].ID)
	b = binary.BigEndian.AppendUint64(b, uint64(s.o.Clock().Add(s.o.Life).UnixMilli()))
	b = append(b, payload...)
	b = appendMAC(b, &keys[0], s.o.Purpose, b)
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// Verify returns the payload of what Sign returned. A string that has expired is
// ticket_expired; one that was not signed by this cluster for this purpose is
// invalid_value.
func (s *Signer) Verify(signed string) ([]byte, error) {
	// The decoder skips line ends; a signed string has none.
	if len(signed) > base64.RawURLEncoding.EncodedLen(signedMin+MaxPayload) || strings.ContainsAny(signed, "\r\n") {
		return nil, s.notOurs()
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(signed)
	if err != nil || len(b) < signedMin || b[0] != signedVersion {
		return nil, s.notOurs()
	}
	keys, err := s.o.Keys()
	if err != nil {
		return nil, fmt.Errorf("auth.Verify: %w", err)
	}
	body, mac := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	id := binary.BigEndian.Uint32(b[1:])
	key := find(keys, id)
	if key == nil {
		if id < keys[len(keys)-1].ID {
			return nil, s.expired() // the key is gone, and so is every life it signed
		}
		return nil, s.notOurs()
	}
	var want [sha256.Size]byte
	if !hmac.Equal(mac, appendMAC(want[:0], key, s.o.Purpose, body)) {
		return nil, s.notOurs()
	}
	if s.o.Clock().UnixMilli() >= int64(binary.BigEndian.Uint64(b[5:])) {
		return nil, s.expired()
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

func (s *Signer) notOurs() error {
	return errs.New(errs.InvalidValue, "the %s is not one that this cluster made", s.o.Purpose)
}

func (s *Signer) expired() error {
	return errs.New(errs.TicketExpired, "the %s has expired; ask for a new one", s.o.Purpose)
}
