package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sync/errgroup"
)

// rawPebble is Pebble as a Go program would use it: one store, defaults except for
// a block cache as large as the server's.
type rawPebble struct {
	dir string
	db  *pebble.DB
}

// The server and Pebble have caches of one size, so that figures do not depend on the
// machine's memory.
const (
	cacheBytes = 512 << 20
	cacheSize  = "512MiB" // the same as a setting
)

func openPebble(dir string) (*rawPebble, error) {
	cache := pebble.NewCache(cacheBytes)
	defer cache.Unref() // the store holds it
	db, err := pebble.Open(dir, &pebble.Options{Cache: cache, Logger: quiet{}})
	if err != nil {
		return nil, err
	}
	return &rawPebble{dir: dir, db: db}, nil
}

// quiet passes on what ends the program alone.
type quiet struct{}

// Infof implements pebble.Logger.
func (quiet) Infof(string, ...any) {}

// Errorf implements pebble.Logger.
func (quiet) Errorf(string, ...any) {}

// Fatalf implements pebble.Logger.
func (quiet) Fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "pebble gave up: "+format+"\n", args...)
	os.Exit(1)
}

// loadPebble makes a store of the keys from 0 and opens it again, so that it is
// all in tables.
func (b *bench) loadPebble(ctx context.Context) (*rawPebble, error) {
	p, err := openPebble(b.path("pebble-get"))
	if err != nil {
		return nil, err
	}
	rnd := random(0)
	var key []byte
	for id := 0; id < b.size.Keys && ctx.Err() == nil; id++ {
		key = rawKey(key, int64(id))
		if err := p.db.Set(key, rawValue(rnd), pebble.NoSync); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(p.db.Flush(), p.db.Close()); err != nil {
		return nil, err
	}
	return openPebble(p.dir)
}

// get looks up n times 100 random keys, with as many goroutines as Millrace has
// clients, and copies each value as an answer would.
func (p *rawPebble) get(ctx context.Context, keys, n int) error {
	var left atomic.Int64
	left.Store(int64(n))
	eg, ctx := errgroup.WithContext(ctx)
	for w := range lookupStreams {
		eg.Go(func() error {
			rnd := random(w)
			var key, answer []byte
			for left.Add(-1) >= 0 && ctx.Err() == nil {
				answer = answer[:0]
				for range keyedRows {
					key = rawKey(key, rnd.Int64N(int64(keys)))
					v, closer, err := p.db.Get(key)
					if err != nil {
						return err
					}
					answer = append(answer, v...)
					if err := closer.Close(); err != nil {
						return err
					}
				}
			}
			return ctx.Err()
		})
	}
	return eg.Wait()
}

// setClosedLoop has each writer commit batches of 100 rows, each synced, one after
// the other.
func (p *rawPebble) setClosedLoop(ctx context.Context, keys, n int) error {
	values := make([][]byte, 1_000)
	for i := range values {
		values[i] = rawValue(random(i))
	}
	var left atomic.Int64
	left.Store(int64(n))
	eg, ctx := errgroup.WithContext(ctx)
	for w := range writers {
		eg.Go(func() error {
			rnd := random(w)
			var key []byte
			for left.Add(-1) >= 0 && ctx.Err() == nil {
				b := p.db.NewBatch()
				for range keyedRows {
					key = rawKey(key, rnd.Int64N(int64(keys)))
					if err := b.Set(key, values[rnd.IntN(len(values))], nil); err != nil {
						return err
					}
				}
				if err := errors.Join(b.Commit(pebble.Sync), b.Close()); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	return eg.Wait()
}

// discard closes it and removes its data, of which nobody has need.
func (p *rawPebble) discard() {
	_ = p.db.Close()
	_ = os.RemoveAll(p.dir)
}
