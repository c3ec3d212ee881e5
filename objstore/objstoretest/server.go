package objstoretest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/objstore"
)

// Server is an S3 server of a test's own, with one bucket.
type Server struct {
	Endpoint  string
	Bucket    string
	AccessKey string
	SecretKey string
}

// Region of servers.
const Region = "us-east-1"

// URI is the address of a prefix in the bucket.
func (s *Server) URI(prefix string) string { return "s3://" + s.Bucket + "/" + prefix }

// Settings reach the server.
func (s *Server) Settings() objstore.S3 {
	return objstore.S3{Endpoint: s.Endpoint, Region: Region, PathStyle: true, AccessKey: s.AccessKey, SecretKey: s.SecretKey}
}

// Client is a stock client of the server.
func (s *Server) Client() *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: &s.Endpoint, Region: Region, UsePathStyle: true,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: s.AccessKey, SecretAccessKey: s.SecretKey}, nil
		}),
	})
}

func (s *Server) makeBucket(t testing.TB) {
	t.Helper()
	_, err := s.Client().CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &s.Bucket})
	require.NoError(t, err)
}

// StartFake starts a server in this process, which keeps objects in memory.
func StartFake(t testing.TB) *Server {
	t.Helper()
	fake := gofakes3.New(s3mem.New(), gofakes3.WithLogger(gofakes3.DiscardLog()))
	server := httptest.NewUnstartedServer(fake.Server())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // It tells of a bug of the fake one.
	server.Start()
	t.Cleanup(server.Close)
	s := &Server{Endpoint: server.URL, Bucket: "lake", AccessKey: "key", SecretKey: "secret"}
	s.makeBucket(t)
	return s
}

// StartGateway starts versitygw, a real server over a folder, in a process of its own;
// the Makefile says which version and builds it.
func StartGateway(t testing.TB) *Server {
	t.Helper()
	binary := gateway(t)
	s := &Server{Bucket: "lake", AccessKey: "key", SecretKey: "secret"}
	dir := t.TempDir()
	for range 3 { // Another process may take the port first.
		address := freeAddress(t)
		var out bytes.Buffer
		cmd := exec.Command(binary, "--port", address, "--quiet", "--keep-alive", "--health", "/health", "--access", s.AccessKey, "--secret", s.SecretKey, "posix", dir) //nolint:noctx // It is stopped below, when the test has ended.
		cmd.Stdout, cmd.Stderr = &out, &out
		require.NoError(t, cmd.Start())
		exited := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(exited)
		}()
		t.Cleanup(func() {
			// Politely it would wait for idle connections.
			_ = cmd.Process.Kill()
			<-exited
		})
		s.Endpoint = "http://" + address
		if answers(t, s.Endpoint+"/health", exited) {
			s.makeBucket(t)
			return s
		}
		t.Logf("versitygw did not start: %s", out.String())
	}
	t.Fatal("versitygw does not start")
	return nil
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it waits for nothing
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// answers waits until a server answers, or has exited.
func answers(t testing.TB, url string, exited <-chan struct{}) bool {
	t.Helper()
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	for range 3000 { // a minute
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		require.NoError(t, err)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			http.DefaultClient.CloseIdleConnections()
			if resp.StatusCode == http.StatusOK {
				return true
			}
		}
		select {
		case <-exited:
			return false
		case <-ticks.C:
		}
	}
	return false
}

// gateway is the path of the binary, which make builds unless it is there.
func gateway(t testing.TB) string {
	t.Helper()
	root, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		require.NotEqual(t, filepath.Dir(root), root, "no go.mod above the test's folder")
		root = filepath.Dir(root)
	}
	var errors bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "make", "-s", "-C", root, "--no-print-directory", "versitygw")
	cmd.Stderr = &errors
	out, err := cmd.Output()
	require.NoError(t, err, fmt.Sprintf("make versitygw: %s", errors.String()))
	return strings.TrimSpace(string(out))
}
