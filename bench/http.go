package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

const arrowStream = "application/vnd.apache.arrow.stream"

// socketBytes is what the readers of R5 take from a socket at once.
const socketBytes = 256 << 10

// readOverHTTP is R5: the wide table as an Arrow stream over HTTP, against as many
// bytes through a plain TCP connection of this process with itself.
func (b *bench) readOverHTTP(ctx context.Context) error {
	if err := b.loadWide(ctx); err != nil {
		return err
	}
	megabytes := b.wideMegabytes() * float64(b.size.Repeat)
	size := int64(megabytes * 1e6)
	return b.compare(ctx, &comparison{
		id: "R5", what: "full-width log read through the HTTP Arrow stream",
		ours: side{name: "millrace", processes: map[string]int{"millrace": b.server.pid()}, work: func(ctx context.Context) (float64, int64, error) {
			var wire int64
			for range b.size.Repeat {
				n, err := b.readHTTP(ctx)
				if err != nil {
					return 0, 0, err
				}
				wire += n
			}
			if wire < size*9/10 { // the first column, which counts, is compressed
				return 0, 0, fmt.Errorf("%d bytes came, of %d", wire, size)
			}
			return megabytes, wire, nil
		}},
		yard: side{name: "raw loopback TCP", work: func(ctx context.Context) (float64, int64, error) {
			return megabytes, size, throughLoopback(ctx, size)
		}},
		metrics: []metric{{name: "MB/s", unit: "MB/s", target: 0.70, of: func(s *sample, _ bool) float64 { return s.perSecond() }}},
	})
}

func (b *bench) readHTTP(ctx context.Context) (int64, error) {
	body := bytes.NewReader([]byte(`{"compression":"stored"}`))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.server.base+"/v1/databases/"+database+"/tables/"+b.wide.name+"/scan", body)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", arrowStream)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("the scan was answered with %s", resp.Status)
	}
	return discard(resp.Body)
}

// discard reads to the end with one large buffer; io.Copy's would be small.
func discard(r io.Reader) (int64, error) {
	var total int64
	buf := make([]byte, socketBytes)
	for {
		n, err := r.Read(buf)
		total += int64(n)
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// throughLoopback sends bytes from memory through a TCP connection.
func throughLoopback(ctx context.Context, size int64) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	sent := make(chan error, 1)
	go func() { sent <- sendTo(ctx, l.Addr().String(), size) }()
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	got, err := discard(c)
	if err := errors.Join(err, <-sent); err != nil {
		return err
	}
	if got != size {
		return fmt.Errorf("%d bytes came through loopback, of %d", got, size)
	}
	return nil
}

func sendTo(ctx context.Context, addr string, size int64) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	buf := make([]byte, 2<<20) // as large as a batch
	for size > 0 {
		n, err := c.Write(buf[:min(size, int64(len(buf)))])
		if err != nil {
			return err
		}
		size -= int64(n)
	}
	return nil
}
