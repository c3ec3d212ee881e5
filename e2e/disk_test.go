package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// disk is a small file system at a folder of a server, which can be filled. It is mounted in a mount namespace of the
// server's process, for which root needs nothing and others user namespaces, and ends with the process.
type disk struct {
	dir string
	mb  int
}

// mountFor makes a command that has not started see the disk.
func (d *disk) mountFor(cmd *exec.Cmd) {
	args := append([]string{"sh", "-ec", `mount -t tmpfs -o "size=$1m,mode=0700" millrace "$0"; shift; exec "$@"`, d.dir, fmt.Sprint(d.mb)}, cmd.Args...)
	cmd.Path, cmd.Args = "/bin/sh", args
	attr := cmd.SysProcAttr
	attr.Cloneflags = syscall.CLONE_NEWNS
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	// Mounts of the namespace stay in it.
	attr.Unshareflags = syscall.CLONE_NEWNS
}

// newServerOnDisk is newServer with a disk at a folder of the server's data directory, or the folder that given says.
func newServerOnDisk(t testing.TB, mb int, dir string, flags ...string) *server {
	t.Helper()
	if os.Getenv("E2E_NO_MOUNT") != "" {
		t.Skip("E2E_NO_MOUNT says that nothing can be mounted here")
	}
	s := &server{dir: t.TempDir(), flags: flags, log: &tailBuffer{}}
	if s.disk = (&disk{dir, mb}); dir == "" {
		s.disk.dir = s.dir
	}
	s.begin(t) // as root or in a user namespace
	return s
}

// sees is where a file that the server has at a path is to be found.
func (s *server) sees(path string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", s.cmd.Process.Pid), path)
}

// fill leaves so much room on the server's disk, and returns what makes room again.
func (s *server) fill(t testing.TB, leave int64) (empty func()) {
	t.Helper()
	name := s.sees(filepath.Join(s.disk.dir, "ballast"))
	f, err := os.Create(name)
	require.NoError(t, err)
	defer f.Close()
	var size int64
	for chunk := make([]byte, 4096); err == nil; {
		var n int
		n, err = f.Write(chunk)
		size += int64(n)
	}
	require.True(t, errors.Is(err, syscall.ENOSPC), "%v", err)
	require.NoError(t, f.Truncate(max(0, size-leave)))
	return func() { require.NoError(t, os.Remove(name)) }
}
