package server

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A second holder of a directory is refused and told who holds it; when the first
// lets go, or dies, the directory is free.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	first, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = lockDir(dir)
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), fmt.Sprintf("process %d;", os.Getpid())) {
		t.Errorf("second lock: %v", err)
	}
	if err := first.release(); err != nil {
		t.Fatal(err)
	}

	// A process that is killed while it holds the lock leaves nothing behind.
	holder := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestHoldLock$")
	holder.Env = append(os.Environ(), lockDirVariable+"="+dir)
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, len(lockHeld))); err != nil {
		t.Fatal(err)
	}
	if _, err := lockDir(dir); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d;", holder.Process.Pid)) {
		t.Errorf("with another process: %v", err)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // it was killed
	again, err := lockDir(dir)
	if err != nil {
		t.Fatalf("after a kill: %v", err)
	}
	if err := again.release(); err != nil {
		t.Error(err)
	}
}

const (
	lockDirVariable = "TEST_LOCK_DIR"
	lockHeld        = "held"
)

// Run by TestLock in a process of its own: it holds a lock until it is killed.
func TestHoldLock(t *testing.T) {
	dir := os.Getenv(lockDirVariable)
	if dir == "" {
		return
	}
	if _, err := lockDir(dir); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(os.Stdout, lockHeld)
	select {}
}

// Data of one cluster and the catalog of another do not go together; a new
// directory gets the catalog's cluster.
func TestGuardCluster(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := makeDataDir(dir); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if err := makeDataDir(dir); err != nil {
		t.Error(err)
	}
	ours, theirs := [16]byte{1}, [16]byte{2}
	for range 2 {
		if err := guardCluster(dir, ours); err != nil {
			t.Error(err)
		}
	}
	err := guardCluster(dir, theirs)
	for _, says := range []string{filepath.Join(dir, clusterFile), "0100000000", "0200000000", "catalog"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
	for content, says := range map[string]string{"{": "damaged", `{"format":2}`: "newer release", "": "damaged"} {
		if err := os.WriteFile(filepath.Join(dir, clusterFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := guardCluster(dir, ours); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", content, err)
		}
	}
}
