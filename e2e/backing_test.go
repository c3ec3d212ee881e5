package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/cluster/natstest"
)

// clusterMode says whether servers are fronts of clusters, so that the tests of a single
// node show the same of a cluster: E2E_CLUSTER=1.
func clusterMode() bool { return os.Getenv("E2E_CLUSTER") != "" }

// backing is what is behind a front in a cluster: a nats-server, and workers.
type backing struct {
	nats    *natstest.Servers
	workers []*server
}

// back puts two workers and a nats-server behind a server, which is to be a front.
func (s *server) back(t testing.TB) {
	t.Helper()
	var err error
	s.of, err = newBacking(t.Context(), s)
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, w := range s.of.workers {
			w.showLog(t)
		}
		s.of.nats.Close()
	})
}

func newBacking(ctx context.Context, front *server) (*backing, error) {
	nats, err := natstest.Start(ctx, natstest.Options{Dir: filepath.Join(front.dir, "nats")})
	if err != nil {
		return nil, err
	}
	b := &backing{nats: nats}
	common := []string{
		"--nats-url", nats.URLs(), "--shards", "4",
		"--lake-uri", "file://" + filepath.Join(front.dir, "lake"), "--remote-uri", "file://" + filepath.Join(front.dir, "remote"),
	}
	for i := range 2 {
		w := &server{dir: filepath.Join(front.dir, fmt.Sprintf("worker%d", i+1)), env: front.env, log: &tailBuffer{}}
		w.flags = append(append([]string{"--roles", "worker"}, common...), front.flags...)
		b.workers = append(b.workers, w)
	}
	front.flags = append(append([]string{"--roles", "front,tier"}, common...), front.flags...)
	return b, nil
}

// launch starts the workers that do not run.
func (b *backing) launch() error {
	for _, w := range b.workers {
		if w.runs() {
			continue
		}
		if err := w.launch(); err != nil {
			return err
		}
	}
	return nil
}

func (b *backing) kill() {
	for _, w := range b.workers {
		w.kill()
	}
}

// drain ends the workers one after the other, and returns the highest exit code.
func (b *backing) drain(t testing.TB) int {
	t.Helper()
	code := 0
	for _, w := range b.workers {
		code = max(code, w.drain(t))
	}
	return code
}

// runs says whether the process was started and has not ended.
func (s *server) runs() bool {
	if s.cmd == nil {
		return false
	}
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}
