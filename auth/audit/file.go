package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// file is the one that lines are appended to.
type file struct {
	path string
	f    *os.File
	// regular says that it is no device or pipe, which can be neither synced nor cut.
	regular bool
	// under is how a write ends that is still under way; nil: none is.
	under chan error
}

func (f *file) open() error {
	how := os.O_CREATE | os.O_APPEND | os.O_WRONLY
	named, err := os.Stat(f.path)
	pipe := err == nil && named.Mode()&os.ModeNamedPipe != 0
	if pipe {
		how |= syscall.O_NONBLOCK // else it waits for somebody who reads
	}
	opened, err := os.OpenFile(filepath.Clean(f.path), how, 0o600)
	if pipe && errors.Is(err, syscall.ENXIO) {
		return fmt.Errorf("nobody reads the pipe: %w", err)
	}
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

// write appends events until ctx ends. What goes on beyond that, as at a pipe that nobody
// reads, is what the next write waits for, which has to be of the same events: a line is not
// cut, nor written twice.
func (f *file) write(ctx context.Context, events []Event) error {
	if f.under == nil {
		under := make(chan error, 1)
		f.under = under
		go func() { under <- f.append(events) }()
	}
	select {
	case err := <-f.under:
		f.under = nil
		return err
	case <-ctx.Done():
		return fmt.Errorf("%s takes nothing: a write to it does not end", f.path)
	}
}

// append appends events and syncs them (D3).
func (f *file) append(events []Event) error {
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

// close closes the file, if need be when a write has ended that is still under way.
func (f *file) close() error {
	under := f.under
	if under == nil {
		return f.f.Close()
	}
	go func() { _ = errors.Join(<-under, f.f.Close()) }() // it has been told as failed
	return nil
}
