package natstest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
)

// Proxy stands between clients and a server, and can lose messages and hold them up.
// It knows where a message begins and ends, so that a connection outlives what it loses.
type Proxy struct {
	target string
	listen net.Listener
	wait   sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	closed  bool
	held    bool
	lose    func(toServer bool, subject string) bool
	conns   map[net.Conn]bool
}

// StartProxy starts a proxy before a server. The caller closes it.
func StartProxy(target *Server) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it waits for nothing
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target.Address(), listen: l, conns: map[net.Conn]bool{}}
	p.changed = sync.NewCond(&p.mu)
	p.wait.Go(p.accept)
	return p, nil
}

// URL is the proxy's address for clients, with the user's name and password.
func (p *Proxy) URL() string {
	return fmt.Sprintf("nats://%s:%s@%s", User, User, p.listen.Addr())
}

// Lose sets what is lost: messages for which lose says so. It gets the subject of a
// message to the server, or from it; nil loses nothing.
func (p *Proxy) Lose(lose func(toServer bool, subject string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = lose
}

// Hold keeps all that clients send, from the next message on; Release lets it go on.
func (p *Proxy) Hold() { p.hold(true) }

// Release ends a Hold.
func (p *Proxy) Release() { p.hold(false) }

func (p *Proxy) hold(held bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = held
	p.changed.Broadcast()
}

// Cut closes all connections; what is held is lost with them.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
	p.changed.Broadcast()
}

// Close ends the proxy. It may be called again.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listen.Close()
	p.Cut()
	p.wait.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target) //nolint:noctx // it is on this machine
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.add(client, server) {
			return
		}
		p.wait.Go(func() { p.carry(server, client, true) })
		p.wait.Go(func() { p.carry(client, server, false) })
	}
}

// add keeps connections to be cut; false when the proxy is closed.
func (p *Proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.closed {
			_ = c.Close()
		} else {
			p.conns[c] = true
		}
	}
	return !p.closed
}

// carry carries one direction of a connection, piece by piece.
func (p *Proxy) carry(to, from net.Conn, toServer bool) {
	defer func() {
		_, _ = to.Close(), from.Close()
		p.mu.Lock()
		delete(p.conns, to)
		delete(p.conns, from)
		p.changed.Broadcast()
		p.mu.Unlock()
	}()
	in := bufio.NewReaderSize(from, 64<<10)
	for {
		piece, subject, err := readPiece(in)
		if err != nil || !p.pass(to, toServer) {
			return
		}
		p.mu.Lock()
		lost := subject != "" && p.lose != nil && p.lose(toServer, subject)
		p.mu.Unlock()
		if lost {
			continue
		}
		if _, err := to.Write(piece); err != nil {
			return
		}
	}
}

// pass waits while messages are held; false when the connection is cut.
func (p *Proxy) pass(to net.Conn, toServer bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for toServer && p.held && p.conns[to] {
		p.changed.Wait()
	}
	return p.conns[to]
}

// readPiece reads a line of the protocol, and the message behind it with its subject.
func readPiece(in *bufio.Reader) ([]byte, string, error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return nil, "", err
	}
	words := bytes.Fields(line)
	if len(words) == 0 {
		return line, "", nil
	}
	switch string(bytes.ToUpper(words[0])) {
	case "PUB", "HPUB", "MSG", "HMSG":
	default:
		return line, "", nil
	}
	size, err := strconv.Atoi(string(words[len(words)-1]))
	if err != nil || len(words) < 3 || size < 0 {
		return nil, "", errors.New("natstest: that is not the protocol")
	}
	piece := append(line, make([]byte, size+2)...)
	if _, err := io.ReadFull(in, piece[len(line):]); err != nil {
		return nil, "", err
	}
	return piece, string(words[1]), nil
}
