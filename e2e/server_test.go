package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/objstore/objstoretest"
)

// patience bounds the wait for what has to come about by itself. No test passes or fails by
// how quick a machine is: it waits for a condition for as long as this, and then asserts.
const patience = 3 * time.Minute

// readyWithin bounds a start; reliability.md allows a restart 5 s, a busy CI machine more.
const readyWithin = 2 * time.Minute

var running atomic.Int64

func alive() int64 { return running.Load() }

// server is one millrace process over one data directory, which may be killed and started again.
type server struct {
	dir    string
	flags  []string
	env    []string // besides the bare one
	disk   *disk    // of its own; nil: none
	under  []string // a command that runs it; nil: none
	base   string   // http://host:port
	flight string   // host:port
	cmd    *exec.Cmd
	done   chan struct{} // closed when the process has ended
	log    *tailBuffer
	client *http.Client
	flying *flightConn
	trust  *tls.Config // of a client of a server with TLS; nil: plain
	of     *backing    // what is behind a front of a cluster; nil: a single node
}

// newServer starts a server of the test's own.
func newServer(t testing.TB, flags ...string) *server {
	t.Helper()
	s := &server{dir: t.TempDir(), flags: flags, log: &tailBuffer{}}
	s.begin(t)
	return s
}

// newServerOnS3 is newServer with its lake in S3.
func newServerOnS3(t testing.TB, store *objstoretest.Server, flags ...string) *server {
	t.Helper()
	s := &server{dir: t.TempDir(), log: &tailBuffer{}}
	s.flags = append([]string{"--lake-uri", store.URI("lakes"), "--s3-endpoint", store.Endpoint, "--s3-region", objstoretest.Region, "--s3-path-style"}, flags...)
	s.env = []string{"AWS_ACCESS_KEY_ID=" + store.AccessKey, "AWS_SECRET_ACCESS_KEY=" + store.SecretKey}
	s.begin(t)
	return s
}

// begin launches the server for the time of the test.
func (s *server) begin(t testing.TB) {
	t.Helper()
	if clusterMode() {
		s.back(t)
	}
	require.NoError(t, s.launch())
	t.Cleanup(func() {
		s.showLog(t)
		s.kill()
	})
}

func (s *server) showLog(t testing.TB) {
	if t.Failed() {
		t.Logf("the end of the server's log:\n%s", s.log.String())
	}
}

// says waits until the log has texts: what a process writes comes through a pipe, after what it does.
func (s *server) says(t testing.TB, texts ...string) {
	t.Helper()
	for _, text := range texts {
		require.Eventually(t, func() bool { return strings.Contains(s.log.String(), text) }, patience, 5*time.Millisecond, "%s is not in the log", text)
	}
}

// launch starts the process, and those behind it, and waits until it is ready.
func (s *server) launch() error {
	if s.of != nil {
		if err := s.of.launch(); err != nil {
			return err
		}
	}
	return s.launchAlone()
}

func (s *server) launchAlone() error {
	addresses := filepath.Join(s.dir, "addresses.json") // on a disk of its own there is none yet
	if err := os.Remove(addresses); err != nil && !os.IsNotExist(err) {
		return err
	}
	args := append([]string{"serve", "--http-addr", "127.0.0.1:0", "--flight-addr", "127.0.0.1:0", "--data-dir", s.dir}, s.flags...)
	cmd := exec.Command(binaryPath, args...)
	cmd.Stdout, cmd.Stderr = s.log, s.log
	cmd.Env = append(bareEnviron(), s.env...)
	// The server dies with the test process, whatever happens to it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if s.disk != nil {
		s.disk.mountFor(cmd)
	}
	if s.under != nil {
		if err := runUnder(cmd, s.under); err != nil {
			return err
		}
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	running.Add(1)
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the exit code is read from ProcessState
		running.Add(-1)
		close(done)
	}()
	s.cmd, s.done = cmd, done
	s.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true, TLSClientConfig: s.trust}}
	if s.disk != nil {
		addresses = s.sees(addresses)
	}
	if err := s.waitReady(addresses); err != nil {
		s.kill()
		return fmt.Errorf("%w\n%s", err, s.log.String())
	}
	return nil
}

func (s *server) waitReady(addresses string) error {
	deadline := time.Now().Add(readyWithin)
	for time.Now().Before(deadline) {
		select {
		case <-s.done:
			return fmt.Errorf("the server ended at start: %v", s.cmd.ProcessState)
		case <-time.After(10 * time.Millisecond):
		}
		if s.findAddresses(addresses) != nil {
			continue
		}
		resp, err := s.client.Get(s.base + "/readyz")
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return nil
		}
	}
	return fmt.Errorf("the server was not ready within %v", readyWithin)
}

func (s *server) findAddresses(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var a struct {
		HTTP, Flight string
		TLS          bool
		PID          int
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return err
	}
	if a.PID != s.cmd.Process.Pid {
		return fmt.Errorf("addresses of process %d", a.PID)
	}
	s.base, s.flight = "http://"+a.HTTP, a.Flight
	if a.TLS {
		s.base = "https://" + a.HTTP
	}
	return nil
}

// kill ends the process as a power cut of the process would: kill -9, nothing said.
func (s *server) kill() {
	if s.of != nil {
		defer s.of.kill()
	}
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may have ended already
	<-s.done
	s.disconnect()
}

// drain asks the process to end and returns its exit code.
func (s *server) drain(t testing.TB) int {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-s.done:
	case <-time.After(patience):
		t.Fatalf("the server did not end within %v of SIGTERM", patience)
	}
	s.disconnect()
	code := s.cmd.ProcessState.ExitCode()
	if s.of != nil {
		code = max(code, s.of.drain(t))
	}
	return code
}

func (s *server) restart(t testing.TB) {
	t.Helper()
	require.NoError(t, s.launch())
}

func (s *server) disconnect() {
	if s.client != nil {
		s.client.CloseIdleConnections()
	}
	s.flying.close()
	s.flying = nil
}

// rssMB is the memory the process holds now; peak is the most it ever held.
func (s *server) rssMB(t testing.TB) (now, peak int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	require.NoError(t, err)
	read := func(key string) int {
		_, rest, ok := strings.Cut(string(b), key+":")
		require.True(t, ok)
		n, err := strconv.Atoi(strings.Fields(rest)[0])
		require.NoError(t, err)
		return n / 1024
	}
	return read("VmRSS"), read("VmHWM")
}

// worked is the time of processors that the process has taken so far.
func (s *server) worked(t testing.TB) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	require.NoError(t, err)
	_, after, ok := bytes.Cut(b, []byte(") ")) // the name of the program, which is the second field
	require.True(t, ok)
	var sum time.Duration
	for _, field := range bytes.Fields(after)[11:13] { // utime and stime, in ticks of which there are 100 a second
		ticks, err := strconv.Atoi(string(field))
		require.NoError(t, err)
		sum += time.Duration(ticks) * 10 * time.Millisecond
	}
	return sum
}

// shared is the server of all tests that neither stop it nor measure it.
type sharedHolder struct {
	once sync.Once
	s    *server
	err  error
}

var sharedServer sharedHolder

func (h *sharedHolder) stopForGood() {
	if h.s != nil {
		h.s.kill()
		if h.s.of != nil {
			h.s.of.nats.Close()
		}
		os.RemoveAll(h.s.dir)
	}
}

// start gives the server a directory that outlives the test which asks first.
func (h *sharedHolder) start() {
	h.s = &server{log: &tailBuffer{}}
	if h.s.dir, h.err = os.MkdirTemp("", "millrace-e2e-shared-"); h.err == nil && clusterMode() {
		h.s.of, h.err = newBacking(context.Background(), h.s)
	}
	if h.err == nil {
		h.err = h.s.launch()
	}
}

func shared(t testing.TB) *server {
	t.Helper()
	h := &sharedServer
	h.once.Do(h.start)
	require.NoError(t, h.err)
	t.Cleanup(func() {
		h.s.showLog(t)
		select {
		case <-h.s.done:
			t.Errorf("the shared server ended by itself: %v", h.s.cmd.ProcessState)
		default:
		}
	})
	return h.s
}

// bareEnviron is the environment without settings that a developer's shell may hold.
func bareEnviron() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "MILLRACE_") {
			env = append(env, kv)
		}
	}
	return env
}

// tailBuffer keeps the last part of what is written to it, or all of it.
type tailBuffer struct {
	all bool

	mu sync.Mutex
	b  []byte
}

func (b *tailBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b = append(b.b, p...)
	const most = 16 << 10
	if len(b.b) > 2*most && !b.all {
		b.b = append([]byte(nil), b.b[len(b.b)-most:]...)
	}
	return len(p), nil
}

func (b *tailBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(bytes.TrimSpace(b.b))
}

// within is a context that ends with the test or after d, whichever is first.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
