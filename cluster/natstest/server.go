package natstest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Server is one nats-server.
type Server struct {
	Name string

	binary, config, log, store string
	host                       string
	under                      []string
	client, monitor, route     int

	cmd     *exec.Cmd
	exited  chan struct{}
	running bool // by our doing: it may have ended by itself
}

type exitedError struct{ name, log string }

func (e *exitedError) Error() string {
	return fmt.Sprintf("natstest: %s ended; its log ends with:\n%s", e.name, e.log)
}

// Address is host and port for clients.
func (s *Server) Address() string { return fmt.Sprintf("%s:%d", s.host, s.client) }

// URL is the address for clients, with the user's name and password.
func (s *Server) URL() string { return s.url(User) }

func (s *Server) url(user string) string {
	return fmt.Sprintf("nats://%s:%s@%s", user, user, s.Address())
}

// PID is the number of the server's process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Messages are how many messages the server has got from clients and other servers, and sent to them.
func (s *Server) Messages(ctx context.Context) (in, out int64, err error) {
	var answer struct {
		In  int64 `json:"in_msgs"`
		Out int64 `json:"out_msgs"`
	}
	err = s.ask(ctx, "/varz", &answer)
	return answer.In, answer.Out, err
}

// Running says whether the server was started and not stopped since.
func (s *Server) Running() bool { return s.running }

// Start starts the server on its store; [Servers.Ready] waits for it.
func (s *Server) Start() error {
	out, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }() // the process has its own
	args := append(slices.Clone(s.under), s.binary, "-c", s.config)
	cmd := exec.Command(args[0], args[1:]...) //nolint:noctx // it lives until it is stopped
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("natstest: %w", err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ends is of no interest
		close(exited)
	}()
	s.cmd, s.exited, s.running = cmd, exited, true
	return nil
}

// Stop asks the server to end, and waits for it.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

// Kill is kill -9.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

func (s *Server) end(sig syscall.Signal) {
	if !s.running {
		return
	}
	s.running = false
	_ = s.cmd.Process.Signal(sig) // it may have ended by itself
	<-s.exited
}

// Pause stops the server where it is: it answers nothing and closes nothing. It has
// stopped when Pause returns.
func (s *Server) Pause() error {
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for !stopped(s.cmd.Process.Pid) {
		time.Sleep(time.Millisecond) //nolint:forbidigo // the kernel tells nobody
	}
	return nil
}

// stopped says whether every thread of a process is stopped, or none is left to be.
func stopped(pid int) bool {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false
	}
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		_, after, _ := bytes.Cut(stat, []byte(") ")) // its state is behind the name
		if !bytes.HasPrefix(after, []byte("T")) && !bytes.HasPrefix(after, []byte("Z")) {
			return false
		}
	}
	return true
}

// Resume ends a pause.
func (s *Server) Resume() error { return s.cmd.Process.Signal(syscall.SIGCONT) }

// RemoveStore removes what the server keeps. It must not be running.
func (s *Server) RemoveStore() error {
	if s.running {
		return fmt.Errorf("natstest: %s is running", s.Name)
	}
	return os.RemoveAll(s.store)
}

// Store is the directory of what the server keeps.
func (s *Server) Store() string { return s.store }

// Log is the end of what the server has said.
func (s *Server) Log() string {
	b, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4000):])
}

// healthy asks the server whether it is well.
func (s *Server) healthy(ctx context.Context) error {
	select {
	case <-s.exited:
		return &exitedError{s.Name, s.Log()}
	default:
	}
	return s.ask(ctx, "/healthz", &struct{}{})
}

func (s *Server) metaLeader(ctx context.Context) (string, error) {
	var answer struct {
		Meta struct {
			Leader string `json:"leader"`
		} `json:"meta_cluster"`
	}
	err := s.ask(ctx, "/jsz", &answer)
	return answer.Meta.Leader, err
}

// ask gets a page of the monitoring port.
func (s *Server) ask(ctx context.Context, page string, answer any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:%d%s", s.host, s.monitor, page), http.NoBody)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("natstest: %s: %w", s.Name, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("natstest: %s: %w", s.Name, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("natstest: %s: %s says %s: %s", s.Name, page, resp.Status, body)
	}
	return json.Unmarshal(body, answer)
}

// StreamLeader is the server that leads a stream of the account, nil when there is none.
func (s *Servers) StreamLeader(ctx context.Context, stream string) (*Server, error) {
	var answer struct {
		Accounts []struct {
			Name    string `json:"name"`
			Streams []struct {
				Name    string `json:"name"`
				Cluster struct {
					Leader string `json:"leader"`
				} `json:"cluster"`
			} `json:"stream_detail"`
		} `json:"account_details"`
	}
	for _, asked := range s.all {
		if !asked.running {
			continue
		}
		if err := asked.ask(ctx, "/jsz?acc=MR&streams=true", &answer); err != nil {
			return nil, err
		}
		for _, account := range answer.Accounts {
			for _, st := range account.Streams {
				if st.Name != stream {
					continue
				}
				for _, server := range s.all {
					if server.running && (server.Name == st.Cluster.Leader || len(s.all) == 1) {
						return server, nil
					}
				}
			}
		}
	}
	return nil, nil
}

// Binary is the path of the nats-server of the Makefile, which builds it unless it is there.
func Binary(ctx context.Context) (string, error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if filepath.Dir(root) == root {
			return "", fmt.Errorf("natstest: no go.mod above the working directory")
		}
		root = filepath.Dir(root)
	}
	cmd := exec.CommandContext(ctx, "make", "-s", "-C", root, "--no-print-directory", "nats-server")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("natstest: make nats-server: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
