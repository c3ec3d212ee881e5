package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// redisServer is a Redis with the same rows as values of 92 bytes, kept in memory
// alone.
type redisServer struct {
	child *child
	addr  string
}

func (b *bench) compareWithRedis(ctx context.Context, ours side, metrics []metric) error {
	r, err := b.startRedis(ctx)
	if err != nil || r == nil {
		return err
	}
	defer r.child.stop()
	if err := r.load(ctx, b.size.Keys); err != nil {
		return err
	}
	return b.compare(ctx, &comparison{
		id: "R7", what: "lookups in batches of 100 keys", ours: ours, metrics: metrics,
		yard: side{name: "Redis GET, pipeline 100", processes: map[string]int{"server": r.child.pid()}, work: func(ctx context.Context) (float64, int64, error) {
			return float64(b.size.LookupBatches * keyedRows), 0, r.get(ctx, b.size.Keys, b.size.LookupBatches)
		}},
	})
}

// startRedis gives nil where there is no Redis.
func (b *bench) startRedis(ctx context.Context) (*redisServer, error) {
	path, err := exec.LookPath("redis-server")
	if errors.Is(err, exec.ErrNotFound) {
		b.note("R7: redis-server is not installed (apt-get install redis-server): not compared with it")
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &redisServer{addr: l.Addr().String()}
	_, port, err := net.SplitHostPort(r.addr)
	if err != nil {
		return nil, err
	}
	if err := l.Close(); err != nil { // Redis takes the port over
		return nil, err
	}
	if r.child, err = startChild(ctx, "redis", path, "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--loglevel", "warning"); err != nil {
		return nil, err
	}
	go func() { _, _ = io.Copy(io.Discard, r.child.out) }() // it logs there
	for range 500 {
		c, err := r.dial(ctx)
		if err == nil {
			return r, c.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.child.stop()
	return nil, fmt.Errorf("no Redis at %s within 5 s", r.addr)
}

func (r *redisServer) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", r.addr)
}

func appendArg(b, arg []byte) []byte {
	b = strconv.AppendInt(append(b, '$'), int64(len(arg)), 10)
	b = append(b, "\r\n"...)
	return append(append(b, arg...), "\r\n"...)
}

// load sets the keys from 0.
func (r *redisServer) load(ctx context.Context, keys int) error {
	c, err := r.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	in := bufio.NewReader(c)
	rnd := random(0)
	for id := 0; id < keys; {
		var b, key []byte
		n := 0
		for ; n < 1_000 && id < keys; n++ {
			key = rawKey(key, int64(id))
			b = appendArg(appendArg(appendArg(append(b, "*3\r\n"...), []byte("SET")), key), rawValue(rnd))
			id++
		}
		if _, err := c.Write(b); err != nil {
			return err
		}
		for range n {
			if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "+OK") {
				return fmt.Errorf("redis answered a SET with %q: %w", line, err)
			}
		}
	}
	return nil
}

// get asks for n pipelines of 100 random keys over as many connections as Millrace
// is asked over.
func (r *redisServer) get(ctx context.Context, keys, n int) error {
	var left atomic.Int64
	left.Store(int64(n))
	eg, ctx := errgroup.WithContext(ctx)
	for w := range lookupStreams {
		eg.Go(func() error {
			c, err := r.dial(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			in := bufio.NewReaderSize(c, 64<<10)
			pipelines := encodeGets(random(w), keys)
			value := make([]byte, valueBytes+16+2)
			for i := 0; left.Add(-1) >= 0; i++ {
				if _, err := c.Write(pipelines[i%len(pipelines)]); err != nil {
					return err
				}
				for range keyedRows {
					if err := readValue(in, value); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	return eg.Wait()
}

func encodeGets(rnd *rand.Rand, keys int) [][]byte {
	out := make([][]byte, 32)
	for i := range out {
		var key []byte
		for range keyedRows {
			key = rawKey(key, rnd.Int64N(int64(keys)))
			out[i] = appendArg(appendArg(append(out[i], "*2\r\n"...), []byte("GET")), key)
		}
	}
	return out
}

// readValue reads the answer to a GET of a key that is there.
func readValue(in *bufio.Reader, value []byte) error {
	head, err := in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if want := "$" + strconv.Itoa(valueBytes+16) + "\r\n"; string(head) != want {
		return fmt.Errorf("redis answered a GET with %q", head)
	}
	_, err = io.ReadFull(in, value)
	return err
}
