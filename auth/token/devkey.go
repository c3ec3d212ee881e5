package token

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/errs"
)

const (
	// DevIssuer is the issuer that tokens of the development key name.
	DevIssuer = "millrace-dev"
	// DevAudience is their audience.
	DevAudience = "millrace"
	// othersMay are the rights of others to a file.
	othersMay = 0o077
)

// DevKeyPath is where the development key of a data directory is.
func DevKeyPath(dataDir string) string { return filepath.Join(dataDir, "auth", "dev-key.json") }

// DevKey is the key that signs tokens for development.
type DevKey struct {
	kid     string
	private ed25519.PrivateKey
}

// devKeyFile is its file: a private JSON Web Key.
type devKeyFile struct {
	Kty string `json:"kty"`
	Crv string `json:"crv"`
	Alg string `json:"alg"`
	Kid string `json:"kid"`
	X   string `json:"x"`
	D   string `json:"d"`
}

// MakeDevKey makes a development key, unless there is one.
func MakeDevKey(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	text := base64.RawURLEncoding.EncodeToString
	b, err := json.Marshal(devKeyFile{
		Kty: "OKP", Crv: "Ed25519", Alg: algEdDSA, Kid: "dev-" + text(public[:9]), X: text(public), D: text(private.Seed()),
	})
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-key-*") // of mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone, when all went well
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// OpenDevKey reads a development key that nobody else can read.
func OpenDevKey(path string) (*DevKey, error) {
	var k *DevKey
	_, err := readFile(path, "", func(b []byte, info os.FileInfo) (s *set, err error) {
		k, err = parseDevKey(b, info, path)
		return &set{}, err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errs.New(errs.InvalidRequest, "there is no key %s: a server makes it at its first start, in its data directory", path)
	}
	return k, err
}

func parseDevKey(b []byte, info os.FileInfo, path string) (*DevKey, error) {
	if mode := info.Mode().Perm(); mode&othersMay != 0 {
		return nil, errs.New(errs.InvalidRequest, "others on this machine can read or change the key (its mode is %04o), and whoever can sign tokens is anyone he likes: remove it, and start the server, which makes another; or, if nobody has read it, chmod 600 %s", mode, path)
	}
	var f devKeyFile
	if err := strictJSON(b); err != nil {
		return nil, fmt.Errorf("not a development key: %w", err)
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, errors.New("not a development key") // what it is instead may be secret
	}
	seed, err := field(f.D)
	if f.Kty != "OKP" || f.Crv != "Ed25519" || f.Kid == "" || len(f.Kid) > maxKid || err != nil || len(seed) != ed25519.SeedSize {
		return nil, errors.New("not a development key; remove it, and start the server, which makes one")
	}
	return &DevKey{kid: f.Kid, private: ed25519.NewKeyFromSeed(seed)}, nil
}

// Dev is a development key as the source of keys.
func Dev(path string) Source {
	return Source{what: path, here: true, interval: lookInterval, pause: lookInterval, read: func(_ context.Context, mark string) (*set, error) {
		return readFile(path, mark, func(b []byte, info os.FileInfo) (*set, error) {
			k, err := parseDevKey(b, info, path)
			if err != nil {
				return nil, err
			}
			return &set{keys: map[string]*key{k.kid: {k.kid, algEdDSA, k.private.Public()}}}, nil
		})
	}}
}
