package server

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	subjectAudit = "audit log"
	adviceAudit  = "name a file that the user that the server runs as may write"
)

// lookAtAudit tells whether a start could write the audit log.
func (d *doctor) lookAtAudit(context.Context) {
	if err := d.s.checkAudit(); err != nil {
		d.failed(subjectAudit, "set it right: a server does not start with it", "%v", err)
	}
	path := d.s.AuditLog
	if path == "" {
		return
	}
	// What reads a pipe would end when we close it.
	if info, err := os.Stat(path); err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		if err := unix.Access(path, unix.W_OK); err != nil {
			d.failed(subjectAudit, adviceAudit, "%s: %v", path, err)
			return
		}
		d.ok(subjectAudit, "%s is a pipe: a server starts while somebody reads it", path)
		return
	}
	// Without making the file.
	f, err := os.OpenFile(filepath.Clean(path), os.O_APPEND|os.O_WRONLY, 0)
	switch {
	case err == nil:
		_ = f.Close() // nothing was written
		d.ok(subjectAudit, "%s can be written", path)
	case !errors.Is(err, fs.ErrNotExist):
		d.failed(subjectAudit, adviceAudit, "%v", err)
	default:
		folder := filepath.Dir(filepath.Clean(path))
		if err := unix.Access(folder, unix.W_OK|unix.X_OK); err != nil {
			d.failed(subjectAudit, "make the folder, and give it to the user that the server runs as", "the file %s cannot be made: %s: %v", path, folder, err)
			return
		}
		d.ok(subjectAudit, "%s is not there yet: the first start makes it", path)
	}
}
