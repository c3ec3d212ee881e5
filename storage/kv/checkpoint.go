package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/internal/markerfs"
)

// Checkpoint makes all that was applied durable and puts it into a directory that is
// not there yet, as files that never change, linked where the file system can. It
// returns the applied LSN, read from there: more may have been applied meanwhile.
func (s *Store) Checkpoint(ctx context.Context, dir string) (millrace.LSN, error) {
	if err := s.Flush(ctx); err != nil {
		return 0, err
	}
	if err := s.bg.death(); err != nil {
		return 0, err
	}
	if err := s.db.Checkpoint(dir); err != nil {
		return 0, diskError("kv.Checkpoint", fmt.Errorf("%s: %w", dir, err))
	}
	return AppliedOf(s.o.FS, dir)
}

// AppliedOf is the applied LSN of the store in a directory that nobody has open.
func AppliedOf(fs vfs.FS, dir string) (lsn millrace.LSN, err error) {
	// ReadOnly writes nothing, so that the directory stays as it is.
	db, err := pebble.Open(dir, &pebble.Options{
		FS: markerfs.Wrap(fs), ReadOnly: true, ErrorIfNotExists: true, DisableWAL: true, Logger: silent{},
		// Pebble's own answer to damage would be Fatalf; the read fails anyhow.
		EventListener: &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}},
	})
	if err != nil {
		return 0, errs.Wrap(errs.CorruptData, "kv.AppliedOf", fmt.Errorf("%s: %w", dir, err))
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	v, closer, err := db.Get(appliedKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, errs.Wrap(errs.CorruptData, "kv.AppliedOf", fmt.Errorf("%s: %w", dir, err))
	}
	defer func() { err = errors.Join(err, closer.Close()) }()
	if len(v) != 8 {
		return 0, errs.New(errs.CorruptData, "%s: the applied LSN has %d bytes", dir, len(v))
	}
	return millrace.LSN(binary.LittleEndian.Uint64(v)), nil
}

// silent keeps what Pebble says of a directory that is only looked at.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf("kv: a store that is only read: "+format, args...))
}
