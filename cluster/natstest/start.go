package natstest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The users; each password is the user's name.
const (
	User       = "mr"  // of the account "MR", which has JetStream
	SystemUser = "sys" // of the system account
)

// Options are what servers are started with.
type Options struct {
	// Servers is 1, the default, or 3: a cluster.
	Servers int
	// Dir takes their files.
	Dir string
	// Hosts are the addresses at which the servers listen, one each; default 127.0.0.1.
	Hosts []string
	// Under are commands that run the servers, one each, such as one that enters a
	// network of its own; default none.
	Under [][]string
	// Binary is the path of nats-server; default: the one that `make nats-server` builds.
	Binary string
	// Sync is jetstream.sync_interval; default "always".
	Sync string
	// MaxStore is what JetStream may use on each; default 64 GiB, which is not a matter
	// of the disk.
	MaxStore int64
	// AccountStore is what the account may store; default no limit of its own.
	AccountStore int64
	// MaxPayload is max_payload; default that of nats-server, 1 MiB.
	MaxPayload int
	// Extra is appended to each server's settings.
	Extra string
}

// Servers are what [Start] started.
type Servers struct {
	opts Options
	all  []*Server
}

// StartT is [Start] for a test, which stops them when it ends.
func StartT(t testing.TB, servers int) *Servers {
	t.Helper()
	s, err := Start(t.Context(), Options{Servers: servers, Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// Start starts servers and waits until they are ready. The caller closes them.
func Start(ctx context.Context, opts Options) (*Servers, error) {
	if opts.Servers == 0 {
		opts.Servers = 1
	}
	if opts.Servers != 1 && opts.Servers != 3 {
		return nil, fmt.Errorf("natstest: %d servers; it starts 1 or 3", opts.Servers)
	}
	if opts.Hosts == nil {
		opts.Hosts = slices.Repeat([]string{"127.0.0.1"}, opts.Servers)
	}
	if opts.Under == nil {
		opts.Under = make([][]string, opts.Servers)
	}
	if len(opts.Hosts) != opts.Servers || len(opts.Under) != opts.Servers {
		return nil, fmt.Errorf("natstest: %d hosts and %d commands for %d servers", len(opts.Hosts), len(opts.Under), opts.Servers)
	}
	if opts.Sync == "" {
		opts.Sync = "always"
	}
	if opts.MaxStore == 0 {
		opts.MaxStore = 64 << 30
	}
	if opts.Binary == "" {
		b, err := Binary(ctx)
		if err != nil {
			return nil, err
		}
		opts.Binary = b
	}
	if err := os.MkdirAll(opts.Dir, 0o755); err != nil {
		return nil, err
	}
	var last error
	for range 3 { // Another process may take a port first.
		s := &Servers{opts: opts}
		if last = s.start(ctx); last == nil {
			return s, nil
		}
		s.Close()
		if ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

func (s *Servers) start(ctx context.Context) error {
	ports, err := freePorts(3 * s.opts.Servers)
	if err != nil {
		return err
	}
	var routes []string
	for i := range s.opts.Servers {
		p := ports[3*i:]
		s.all = append(s.all, &Server{
			Name: fmt.Sprintf("n%d", i+1), binary: s.opts.Binary, host: s.opts.Hosts[i], under: s.opts.Under[i], client: p[0], monitor: p[1], route: p[2],
			config: filepath.Join(s.opts.Dir, fmt.Sprintf("n%d.conf", i+1)),
			log:    filepath.Join(s.opts.Dir, fmt.Sprintf("n%d.log", i+1)),
			store:  filepath.Join(s.opts.Dir, fmt.Sprintf("store%d", i+1)),
		})
		routes = append(routes, fmt.Sprintf("nats://%s:%d", s.opts.Hosts[i], p[2]))
	}
	for _, server := range s.all {
		if err := os.WriteFile(server.config, []byte(s.settings(server, routes)), 0o600); err != nil {
			return err
		}
		if err := server.Start(); err != nil {
			return err
		}
	}
	return s.Ready(ctx)
}

// settings are the text of a server's settings.
func (s *Servers) settings(server *Server, routes []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "server_name: %s\nhost: %q\nport: %d\nhttp: \"%s:%d\"\n", server.Name, server.host, server.client, server.host, server.monitor)
	fmt.Fprintf(&b, "jetstream {\n  store_dir: %q\n  sync_interval: %q\n  max_file_store: %d\n  max_memory_store: 67108864\n}\n", server.store, s.opts.Sync, s.opts.MaxStore)
	jetstream := "enabled"
	if s.opts.AccountStore > 0 {
		jetstream = fmt.Sprintf("{max_file: %d}", s.opts.AccountStore)
	}
	fmt.Fprintf(&b, "accounts {\n  MR { jetstream: %s, users: [{user: %s, password: %s}] }\n  SYS { users: [{user: %s, password: %s}] }\n}\nsystem_account: SYS\n", jetstream, User, User, SystemUser, SystemUser)
	if s.opts.MaxPayload > 0 {
		fmt.Fprintf(&b, "max_payload: %d\n", s.opts.MaxPayload)
	}
	if len(routes) > 1 {
		fmt.Fprintf(&b, "cluster {\n  name: natstest\n  listen: \"%s:%d\"\n  routes: [%s]\n}\n", server.host, server.route, strings.Join(routes, ", "))
	}
	b.WriteString(s.opts.Extra + "\n")
	return b.String()
}

// Len is how many servers there are.
func (s *Servers) Len() int { return len(s.all) }

// Server returns one, from 0.
func (s *Servers) Server(i int) *Server { return s.all[i] }

// URLs is a comma list of the addresses, with the user's name and password.
func (s *Servers) URLs() string { return s.urls(User) }

// SystemURLs is a comma list of the addresses, with the system user's name and password.
func (s *Servers) SystemURLs() string { return s.urls(SystemUser) }

func (s *Servers) urls(user string) string {
	var all []string
	for _, server := range s.all {
		all = append(all, server.url(user))
	}
	return strings.Join(all, ",")
}

// Close kills all of them. It may be called again.
func (s *Servers) Close() {
	for _, server := range s.all {
		server.Kill()
	}
}

// Ready waits, two minutes at most, until every server that runs is well and, where there are
// three, a leader of the cluster is known to each.
func (s *Servers) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.ready(ctx)
		if err == nil {
			return nil
		}
		if exited, ok := errors.AsType[*exitedError](err); ok {
			return exited
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("natstest: not ready: %w", err)
		case <-tick.C:
		}
	}
}

func (s *Servers) ready(ctx context.Context) error {
	leaders := map[string]bool{}
	for _, server := range s.all {
		if !server.running {
			continue
		}
		if err := server.healthy(ctx); err != nil {
			return err
		}
		if len(s.all) == 1 {
			continue
		}
		leader, err := server.metaLeader(ctx)
		if err != nil {
			return err
		}
		leaders[leader] = true
	}
	if leaders[""] || len(leaders) > 1 {
		return fmt.Errorf("natstest: the servers do not agree on a leader: %v", leaders)
	}
	return nil
}

// freePorts finds ports below those that outgoing connections are given, so that a
// server that is away for a while finds its own free again.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range 1000 {
		port := 10_000 + rand.IntN(22_000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)) //nolint:noctx // it waits for nothing
		if err != nil {
			continue
		}
		defer func() { _ = l.Close() }() // so that none is found twice
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("natstest: no free ports")
}
