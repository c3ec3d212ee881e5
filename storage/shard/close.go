package shard

import (
	"context"
	"errors"

	"github.com/millrace/millrace/errs"
)

// Close takes a checkpoint when the shard is sound, gives it a while to reach the object
// store, stops, and closes the stores.
// Writes that wait are answered with errs.Draining. It waits for lookups and
// snapshots under way; when ctx ends before they do, it returns an error, walks over
// rows end with one, and the stores close when the last reader has left (see Closed).
func (s *Shard) Close(ctx context.Context) error {
	s.leave(errs.New(errs.Draining, "the server is shutting down"))
	if !s.closing.CompareAndSwap(false, true) {
		return nil
	}
	if s.kv == nil {
		close(s.closed)
		return nil
	}
	var err error
	if s.Err() == nil {
		err = s.Checkpoint(ctx)
		s.lastUpload(ctx)
	}
	return errors.Join(err, s.shutdown(ctx))
}

// Resign ends the service in order, for another process to take over: no more writes
// are taken, what was taken is finished and answered, and a checkpoint is taken of all
// of it. Everything is then answered with errs.NotOwner, also those who wait for
// changes; nothing is written any more. Walks over snapshots go on until Close, which
// the caller calls next, and which lets go of the files.
//
// The shard has stopped when it returns, also with an error: then the checkpoint
// failed, and the log has what it would have held.
func (s *Shard) Resign(ctx context.Context) error {
	gone := errs.New(errs.NotOwner, "shard %d has moved to another worker", s.o.ID)
	s.leave(gone)
	if s.kv == nil || s.Err() != nil {
		return nil //nolint:nilerr // it has stopped already, which is what was asked for
	}
	s.endLoop()
	var err error
	select {
	case <-s.loopDone:
		err = s.Checkpoint(ctx)
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.kv.Dead():
		err = s.Err()
	}
	s.end(gone)
	return err
}

// leave makes the shard take no more writes; the first reason stays.
func (s *Shard) leave(reason error) { s.leaving.CompareAndSwap(nil, &reason) }

// Abandon ends the service at once: what is under way in the log is answered as
// unknown, and no checkpoint is taken. Close lets go of the files.
func (s *Shard) Abandon() {
	gone := errs.New(errs.NotOwner, "shard %d is not served by this worker any more", s.o.ID)
	s.leave(gone)
	s.end(gone)
}

// Closed is closed when nothing of the shard is open any more, so that its directory
// can be opened again.
func (s *Shard) Closed() <-chan struct{} { return s.closed }

// shutdown stops the goroutines and lets go of the files.
func (s *Shard) shutdown(ctx context.Context) error {
	s.endLoop()
	s.endFlush()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.wg.Wait()
	}()
	select {
	case <-stopped:
	case <-s.kv.Dead():
		// A goroutine may wait in Pebble for ever: what is on disk is what a crash
		// leaves, and nothing writes any more.
		close(s.closed)
		return s.kv.Close()
	}
	s.end(*s.leaving.Load())
	s.dropUpload()
	s.reads.close()
	if err := s.snapshots.closeAll(ctx); err != nil {
		s.kv.Interrupt(s.Err())
		go func() {
			defer close(s.closed)
			s.snapshots.open.Wait()
			if err := s.closeFiles(); err != nil {
				s.o.Logger.ErrorContext(ctx, "shard did not close", slogErr(err))
			}
		}()
		return err
	}
	defer close(s.closed)
	return s.closeFiles()
}

// closeFiles closes the logs of buckets, and the state.
// REQUIRES: nobody else uses the shard any more.
func (s *Shard) closeFiles() error {
	var err error
	for _, r := range s.expiry.released { // a manifest may name them
		s.closeReleased(r)
	}
	s.expiry.released = nil
	for _, b := range s.allBuckets() {
		err = errors.Join(err, b.log.Close(s.stoppedError()))
	}
	return errors.Join(err, s.kv.Close())
}
