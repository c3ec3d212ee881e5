package faultproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// maxBody bounds the body of a request or an answer.
const maxBody = 256 << 20

// Proxy is a server on a port of its own before another one.
type Proxy struct {
	// Endpoint is its address.
	Endpoint string

	upstream  *url.URL
	transport *http.Transport
	server    *http.Server
	ending    context.CancelFunc
	serving   sync.WaitGroup

	mu struct {
		sync.Mutex
		schedule Schedule
		delay    time.Duration
		seen     int
		met      map[Fault]int
	}
}

// Start starts a proxy before the server at an address, without faults at first.
func Start(ctx context.Context, upstream string) (*Proxy, error) {
	u, err := url.Parse(upstream)
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	life, ending := context.WithCancel(context.WithoutCancel(ctx))
	p := &Proxy{
		Endpoint: "http://" + l.Addr().String(), upstream: u, ending: ending,
		transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64},
	}
	p.mu.met, p.mu.delay = map[Fault]int{}, DefaultDelay
	p.server = &http.Server{
		Handler: http.HandlerFunc(p.serve), ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return life },
	}
	p.serving.Go(func() { _ = p.server.Serve(l) })
	return p, nil
}

// Close ends the proxy, and every request that it has.
func (p *Proxy) Close() {
	p.ending()
	_ = p.server.Close()
	p.serving.Wait()
	p.transport.CloseIdleConnections()
}

// Set has requests from now on meet the faults of a schedule, whose count begins anew;
// nil: none. delay is that of Delay, 0 is DefaultDelay.
func (p *Proxy) Set(s Schedule, delay time.Duration) {
	if delay == 0 {
		delay = DefaultDelay
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.schedule, p.mu.delay, p.mu.seen = s, delay, 0
}

// Met is how many requests met each fault so far; of None, those that met none.
func (p *Proxy) Met() map[Fault]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.mu.met)
}

func (p *Proxy) meet(r *http.Request) (Fault, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := None
	if p.mu.schedule != nil {
		f = p.mu.schedule(p.mu.seen, r)
	}
	p.mu.seen++
	p.mu.met[f]++
	return f, p.mu.delay
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	p.serving.Add(1)
	defer p.serving.Done()
	fault, delay := p.meet(r)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		reset(w)
		return
	}
	switch fault {
	case Delay:
		t := time.NewTimer(delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.Context().Done():
			reset(w)
			return
		}
	case SlowDown:
		refuse(w, http.StatusServiceUnavailable, "SlowDown")
		return
	case InternalError:
		refuse(w, http.StatusInternalServerError, "InternalError")
		return
	case Reset:
		reset(w)
		return
	case Twice:
		if _, err := p.forward(r, body); err != nil {
			reset(w)
			return
		}
	default: // of the answer
	}
	// The client may be gone meanwhile; the server is to see the request all the same.
	a, err := p.forward(r.WithContext(context.WithoutCancel(r.Context())), body)
	if err != nil {
		reset(w)
		return
	}
	switch fault {
	case LoseAnswer:
		reset(w)
	case LoseAnswerSoftly:
		refuse(w, http.StatusInternalServerError, "InternalError")
	case Hang:
		<-r.Context().Done()
		reset(w)
	case Truncate:
		if len(a.content) == 0 {
			reset(w)
			return
		}
		send(w, a, a.content[:len(a.content)/2])
		_ = http.NewResponseController(w).Flush()
		reset(w)
	case Corrupt:
		if len(a.content) > 0 {
			a.content[len(a.content)/2] ^= 1
		}
		send(w, a, a.content)
	default:
		send(w, a, a.content)
	}
}

// answer is the server's, whole.
type answer struct {
	status  int
	header  http.Header
	length  int64 // as the header says; below 0 when it does not
	content []byte
}

// forward asks the server. The host's name stays that of the proxy, since it is signed.
func (p *Proxy) forward(r *http.Request, body []byte) (*answer, error) {
	to := *r.URL
	to.Scheme, to.Host = p.upstream.Scheme, p.upstream.Host
	req, err := http.NewRequestWithContext(r.Context(), r.Method, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header, req.Host, req.ContentLength = r.Header.Clone(), r.Host, int64(len(body))
	req.Header.Del("Expect")
	if len(body) == 0 {
		req.Body = http.NoBody
	}
	resp, err := p.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a := &answer{status: resp.StatusCode, header: resp.Header, length: resp.ContentLength}
	a.content, err = io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err == nil && r.Method != http.MethodHead && a.length >= 0 && int64(len(a.content)) != a.length {
		err = errors.New("the server's answer breaks off")
	}
	return a, err
}

// send answers as the server did, whatever part of its body is sent.
func send(w http.ResponseWriter, a *answer, content []byte) {
	maps.Copy(w.Header(), a.header)
	if a.length >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(a.length, 10))
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(content)
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>by a fault</Message></Error>`, code)
}

// reset breaks the connection without a farewell.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
