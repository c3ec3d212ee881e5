package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// file is the one that lines are appended to.
type file struct {
	path string
	f    *os.File
	// regular says that it is no device or pipe, which can be neither synced nor cut.
	regular bool
}

func (f *file) open() error {
	opened, err := os.OpenFile(filepath.Clean(f.path), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	info, err := opened.Stat()
	if err != nil {
		return errors.Join(err, opened.Close())
	}
	f.f, f.regular = opened, info.Mode().IsRegular()
	return nil
}

// write appends events and syncs them (D3).
func (f *file) write(events []Event) error {
	if err := f.reopen(); err != nil {
		return err
	}
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	enc.SetEscapeHTML(false)
	for i := range events {
		if err := enc.Encode(&events[i]); err != nil {
			return err
		}
	}
	if !f.regular {
		_, err := f.f.Write(lines.Bytes())
		return err
	}
	before, err := f.f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := f.f.Write(lines.Bytes()); err != nil {
		// A part of a line would spoil the next one.
		return errors.Join(err, f.f.Truncate(before))
	}
	return f.f.Sync()
}

// reopen makes the file anew when it was moved away or removed, as log rotation does.
func (f *file) reopen() error {
	is, err := f.f.Stat()
	if err != nil {
		return err
	}
	named, err := os.Stat(f.path)
	if err == nil && os.SameFile(is, named) {
		return nil
	}
	old := f.f
	if err := f.open(); err != nil {
		return fmt.Errorf("making it anew after it was moved away: %w", err)
	}
	return old.Close()
}

func (f *file) close() error { return f.f.Close() }
