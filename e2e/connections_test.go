package e2e

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Ten thousand connections that say nothing, or have asked for something and are silent,
// leave the service usable on both ports: clients that come after them are served, what the
// process holds is bounded, and it is as before when they have gone.
func TestSilentConnections(t *testing.T) {
	many := 10_000
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if left := int(limit.Cur) - 2000; left < many {
		many = left // of this process; the server's own limit bounds it in the same way
	}
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, v BIGINT", "id", 2)
	n := 0
	pace := func() time.Duration {
		return median(51, func() {
			n++
			// Each time a new connection, as of a client that comes now.
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			a, err := ask(client, "POST", s.base+tb.path()+"/records", fmt.Sprintf(`{"rows":[{"id":1,"v":%d}]}`, n))
			require.NoError(t, err)
			require.Equal(t, 200, a.status, "%s", a.body)
		})
	}
	alone := pace()
	before, _ := s.rssMB(t)
	for name, address := range map[string]string{"http": strings.TrimPrefix(s.base, "http://"), "http, after a request": strings.TrimPrefix(s.base, "http://"), "flight": s.flight} {
		var conns []net.Conn
		for range many {
			c, err := net.DialTimeout("tcp", address, 30*time.Second)
			require.NoError(t, err)
			conns = append(conns, c)
			if name == "http, after a request" {
				_, err = fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
				require.NoError(t, err)
			}
		}
		beside := pace()
		scanned := time.Now()
		_, rows := s.dial(t).scan(t, pathOf(tb))
		require.Len(t, rows, 1)
		during, _ := s.rssMB(t)
		t.Logf("%d silent connections (%s): a write by a new connection %v, %v alone; a scan over Flight by one %v; %d MiB, %d before", many, name, beside, alone, time.Since(scanned), during, before)
		require.Less(t, during-before, 500)
		for c := range slices.Values(conns) {
			c.Close()
		}
	}
	require.Eventually(t, func() bool { return pace() < 20*alone+100*time.Millisecond }, patience, time.Millisecond)
}
