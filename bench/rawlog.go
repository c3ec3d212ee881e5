package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"golang.org/x/sync/errgroup"
)

// maxGroup bounds what is made durable by one fdatasync, as the server's log does.
const maxGroup = 16 << 20

// rawLog is the least that a durable append of a log store costs: one file that
// writers share, each fdatasync for all that wait, and a second file that is
// written and not synced, where the server has its segments.
type rawLog struct {
	dir           string
	first, second *os.File
	queue         chan rawAppend
	copies        chan []byte
	group         errgroup.Group
}

type rawAppend struct {
	body []byte
	done chan<- error
}

func openRawLog(dir string) (*rawLog, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	l := &rawLog{dir: dir, queue: make(chan rawAppend, writers), copies: make(chan []byte, writers)}
	var err error
	if l.first, err = os.Create(filepath.Join(dir, "first")); err != nil {
		return nil, err
	}
	if l.second, err = os.Create(filepath.Join(dir, "second")); err != nil {
		return nil, err
	}
	l.group.Go(l.commit)
	l.group.Go(l.copy)
	return l, nil
}

// commit writes what waits and syncs once for all of it.
func (l *rawLog) commit() error {
	defer close(l.copies)
	for a := range l.queue {
		group := []rawAppend{a}
		for size := len(a.body); size < maxGroup; {
			select {
			case a, ok := <-l.queue:
				if ok {
					group, size = append(group, a), size+len(a.body)
					continue
				}
			default:
			}
			break
		}
		var err error
		for _, a := range group {
			if err == nil {
				_, err = l.first.Write(a.body)
			}
		}
		if err == nil {
			err = syscall.Fdatasync(int(l.first.Fd()))
		}
		for _, a := range group {
			a.done <- err
			l.copies <- a.body
		}
	}
	return nil
}

func (l *rawLog) copy() error {
	var err error
	for body := range l.copies {
		if err == nil {
			_, err = l.second.Write(body)
		}
	}
	return err
}

// appendClosedLoop has each writer wait for its append before the next.
func (l *rawLog) appendClosedLoop(ctx context.Context, body []byte, n int) error {
	var left atomic.Int64
	left.Store(int64(n))
	eg, ctx := errgroup.WithContext(ctx)
	for range writers {
		eg.Go(func() error {
			done := make(chan error, 1)
			for left.Add(-1) >= 0 && ctx.Err() == nil {
				l.queue <- rawAppend{body, done}
				if err := <-done; err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	err := eg.Wait()
	close(l.queue)
	return errors.Join(err, l.group.Wait())
}

func (l *rawLog) close() error {
	return errors.Join(l.first.Close(), l.second.Close(), os.RemoveAll(l.dir))
}
