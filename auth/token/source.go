package token

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/millrace/millrace/errs"
)

const (
	// readTime bounds the reading of keys.
	readTime = 10 * time.Second
	// refreshInterval is how old the keys of an address get before it is asked again, and
	// refetchPause is between two tries.
	refreshInterval = 10 * time.Minute
	refetchPause    = 30 * time.Second
	// lookInterval is how often a file is looked at.
	lookInterval = 2 * time.Second
	// keysLife is how long keys are good that were read once, when their source does not
	// answer any more.
	keysLife = refreshInterval + time.Hour
)

// Source is where keys come from.
type Source struct {
	// what it is, for people.
	what string
	// read gives the keys. When the source is as it was at mark, it may give errSame.
	read func(ctx context.Context, mark string) (*set, error)
	// interval and pause: how old the keys get, and what is between two tries.
	interval, pause time.Duration
	// here says that it is on this machine: what is wrong with it will not mend itself.
	here bool
}

var errSame = errors.New("as it was")

// Parse is the source that a setting names: a file, or the address of a set of keys. An
// address is https, since who can change the answer can sign tokens; plain http is taken
// for this machine itself.
func Parse(setting string, client *http.Client) (Source, error) {
	scheme, _, isAddress := strings.Cut(setting, "://")
	if !isAddress {
		return File(setting), nil
	}
	u, err := url.Parse(setting)
	switch {
	case err != nil || u.Host == "":
		return Source{}, errs.New(errs.InvalidRequest, "%q is not an address such as https://host/keys", setting)
	case u.User != nil:
		return Source{}, errs.New(errs.InvalidRequest, "the address of keys holds a password, and would stand in logs; keys are public, so it needs none")
	case scheme == "http" && !loopback(u.Hostname()):
		return Source{}, errs.New(errs.InvalidRequest, "%s is plain http: who is between could change the keys and so sign tokens; use https", setting)
	case scheme != "http" && scheme != "https":
		return Source{}, errs.New(errs.InvalidRequest, "%s is neither a file nor an https address", setting)
	}
	return address(u.String(), client), nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// File is a set of keys in a file, which is looked at every lookInterval.
func File(path string) Source {
	return Source{what: path, here: true, interval: lookInterval, pause: lookInterval, read: func(_ context.Context, mark string) (*set, error) {
		return readFile(path, mark, func(b []byte, _ os.FileInfo) (*set, error) { return parseSet(b) })
	}}
}

// readFile reads a file that is not as it was at mark.
func readFile(path, mark string, parse func([]byte, os.FileInfo) (*set, error)) (*set, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", path)
	}
	now := fmt.Sprintf("%d %d %v %v", info.Size(), info.ModTime().UnixNano(), info.Mode(), inode(info))
	if now == mark {
		return nil, errSame
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSet+1))
	if err != nil {
		return nil, err
	}
	s, err := parse(b, info)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s.mark = now
	return s, nil
}

// address is a set of keys at an address.
func address(at string, client *http.Client) Source {
	if client == nil {
		client = &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: readTime}).DialContext, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: readTime, ResponseHeaderTimeout: readTime, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
		}}
	}
	c := *client
	c.CheckRedirect = func(*http.Request, []*http.Request) error {
		return errors.New("it sends us to another address; set that one")
	}
	return Source{what: at, interval: refreshInterval, pause: refetchPause, read: func(ctx context.Context, _ string) (*set, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Accept", "application/jwk-set+json, application/json")
		resp, err := c.Do(req)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("%s answers %s", at, resp.Status)
		}
		b, err := io.ReadAll(io.LimitReader(resp.Body, maxSet+1))
		if err != nil {
			return nil, err
		}
		return parseSet(b)
	}}
}
