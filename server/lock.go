package server

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lockFile is the file of a data directory that its server holds locked. It holds
// the server's process id, for people.
const lockFile = "LOCK"

// dirLock is a locked data directory.
type dirLock struct{ f *os.File }

// lockDir takes the lock of dir. The kernel lets go of it when the process ends,
// however it ends, so a killed server leaves nothing to clean up.
func lockDir(dir string) (*dirLock, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("data directory %s is in use by %s; stop that server, or give this one another --data-dir", dir, holder(f))
		}
		return nil, fmt.Errorf("locking data directory %s: %w", dir, err)
	}
	if err := errors.Join(f.Truncate(0), writeAt0(f, strconv.Itoa(os.Getpid())+"\n")); err != nil {
		return nil, errors.Join(fmt.Errorf("data directory %s: %w", dir, err), f.Close())
	}
	return &dirLock{f}, nil
}

func writeAt0(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

func holder(f *os.File) string {
	b, err := io.ReadAll(io.LimitReader(f, 32))
	if pid := strings.TrimSpace(string(b)); err == nil && pid != "" {
		return "process " + pid
	}
	return "another process"
}

// release lets go of the lock. The file stays: removing it would let two servers
// lock two files of one name.
func (l *dirLock) release() error { return l.f.Close() }
