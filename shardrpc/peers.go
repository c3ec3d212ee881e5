package shardrpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/trace"
)

// Paths below which a process answers others; the number of the shard follows.
const (
	Root     = "/internal/v1/"
	pathCall = Root + "call/"
	pathRead = Root + "read/"
)

// MaxAnswer bounds an answer by HTTP.
const MaxAnswer = 256 << 20

// HTTP is how to reach other processes by HTTP.
type HTTP struct {
	Client *http.Client
	// Token makes a token that the others take for the cluster's.
	Token func() (string, error)
}

// peers are the addresses of the owners of shards, as they were told last.
type peers struct {
	mu sync.Mutex
	at map[millrace.ShardID]string
}

func (p *peers) known(id millrace.ShardID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at[id]
}

func (p *peers) set(id millrace.ShardID, at string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == nil {
		p.at = map[millrace.ShardID]string{}
	}
	p.at[id] = at
}

// forget lets go of an address that was no good.
func (p *peers) forget(id millrace.ShardID, at string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at[id] == at {
		delete(p.at, id)
	}
}

// where is the address of the owner of a shard: as known, or asked for.
func (c *Client) where(ctx context.Context, id millrace.ShardID) (string, error) {
	if at := c.peers.known(id); at != "" {
		return at, nil
	}
	at, err := c.askWhere(ctx, id)
	if err == nil {
		c.peers.set(id, at)
	}
	return at, err
}

// askWhere asks the owner of a shard for its address.
func (c *Client) askWhere(ctx context.Context, id millrace.ShardID) (string, error) {
	answer, err := c.o.Transport.Call(ctx, id, appendHead(nil, kindWhere, 0))
	if err != nil {
		if !errors.Is(err, ErrNobody) && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", ErrNobody, err) // nothing was asked but where it is
		}
		return "", err
	}
	d, err := open(answer)
	if err != nil {
		return "", err
	}
	at := string(d.bytes())
	if err := d.end(); err != nil {
		return "", err
	}
	if !strings.HasPrefix(at, "http://") && !strings.HasPrefix(at, "https://") {
		return "", errs.New(errs.Unavailable, "the owner of shard %d tells no address for HTTP", id)
	}
	return at, nil
}

// doubt gives up a request when another process owns the shard by now: the one that it
// went to may stand still, and its connection with it.
func (c *Client) doubt(ctx context.Context, giveUp func(), id millrace.ShardID, at string) {
	tick := time.NewTicker(c.o.Again)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		once, cancel := context.WithTimeout(ctx, c.o.Again)
		now, err := c.askWhere(once, id)
		cancel()
		if err == nil && now != at {
			giveUp()
			return
		}
	}
}

// do sends a request to the owner of a shard. ErrNobody says that nobody took it.
func (c *Client) do(ctx context.Context, id millrace.ShardID, path string, body []byte) (*http.Response, error) {
	at, err := c.where(ctx, id)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s%s%d", strings.TrimSuffix(at, "/"), path, id), bytes.NewReader(body))
	if err != nil {
		c.peers.forget(id, at)
		return nil, errs.New(errs.Unavailable, "the owner of shard %d tells an address that is none: %v", id, err)
	}
	// What is sent again after it may have been taken is sent by who knows what it is.
	req.GetBody = nil
	token, err := c.o.HTTP.Token()
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/octet-stream")
	trace.Inject(ctx, req.Header.Set)
	resp, err := c.o.HTTP.Client.Do(req)
	if err != nil {
		c.peers.forget(id, at)
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			return nil, fmt.Errorf("%w: %w", ErrNobody, err)
		}
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 512)) // says why
	c.peers.forget(id, at)
	switch resp.StatusCode {
	case http.StatusMisdirectedRequest:
		return nil, ErrNobody
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, errs.New(errs.Unavailable, "the owner of shard %d at %s takes us for none of its cluster: %s", id, at, text)
	}
	return nil, fmt.Errorf("the owner of shard %d at %s answers %s: %s", id, at, resp.Status, text)
}

// post makes a call by HTTP.
func (c *Client) post(ctx context.Context, id millrace.ShardID, request []byte) ([]byte, error) {
	at, err := c.where(ctx, id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var doubting sync.WaitGroup
	doubting.Go(func() { c.doubt(ctx, cancel, id, at) })
	defer doubting.Wait()
	defer cancel()
	resp, err := c.do(ctx, id, pathCall, request)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	size := resp.ContentLength
	switch {
	case size < 0:
		return nil, errBroken
	case size > MaxAnswer:
		return nil, errs.New(errs.TooLarge, "an answer of shard %d has more than %d bytes", id, MaxAnswer)
	}
	if err := c.answers.Acquire(ctx, size); err != nil {
		return nil, err
	}
	defer c.answers.Release(size)
	answer := make([]byte, size)
	_, err = io.ReadFull(resp.Body, answer)
	return answer, err
}
