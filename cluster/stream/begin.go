package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/wal"
)

// Found is what NATS has of a shard's log.
type Found struct {
	LogID   uint64
	First   millrace.LSN // 0: there are no records
	Last    millrace.LSN
	Records uint64
}

// Find says what there is of a shard's log; nil when there is no stream.
func (s *Streams) Find(ctx context.Context, shard millrace.ShardID) (*Found, error) {
	l, err := s.existing(ctx, shard)
	if err != nil || l == nil {
		return nil, err
	}
	info, err := l.info(ctx)
	if err != nil {
		return nil, err
	}
	f := &Found{LogID: l.logID, Records: info.State.Msgs}
	if f.Records > 0 {
		f.First, f.Last = millrace.LSN(info.State.FirstSeq), millrace.LSN(info.State.LastSeq)
	}
	return f, nil
}

// Inspect opens a log for who looks what of it reads: it is not made where it is not,
// and the record at its end need not read. The log is nil when there is no stream.
func (s *Streams) Inspect(ctx context.Context, shard millrace.ShardID) (*Log, error) {
	l, err := s.existing(ctx, shard)
	if err != nil || l == nil {
		return nil, err
	}
	l.damagedEnd = true
	_, err = l.Refresh(ctx)
	return l, err
}

func (s *Streams) existing(ctx context.Context, shard millrace.ShardID) (*Log, error) {
	name := s.names.LogStream(shard)
	rctx, cancel := s.conn.Request(ctx, s.opts.Patience)
	defer cancel()
	st, err := s.conn.JetStream().Stream(rctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, nil //nolint:nilnil // There is none.
	case err != nil:
		return nil, errs.New(errs.Unavailable, "opening stream %s: %v", name, err)
	}
	return s.log(shard, st)
}

// Begin makes the log of a shard, which is not there, anew behind a tail that has an id
// of its own: its first record, a noop, has the LSN after the tail's.
func (s *Streams) Begin(ctx context.Context, shard millrace.ShardID, behind wal.Tail) error {
	cfg := s.config(shard, behind.LogID)
	cfg.FirstSeq = uint64(behind.LSN) + 1
	st, err := s.conn.OpenStream(ctx, cfg)
	if err != nil {
		return err
	}
	l, err := s.log(shard, st)
	if err != nil {
		return err
	}
	info, err := l.info(ctx)
	if err != nil {
		return err
	}
	if l.logID != behind.LogID || info.State.Msgs > 0 || info.State.LastSeq != uint64(behind.LSN) {
		return errs.New(errs.InvalidRequest, "stream %s was made by another meanwhile: it is log %x and has %d records", l.name, l.logID, info.State.Msgs)
	}
	l.at.end = behind
	l.sized(info)
	if _, err := l.Append(ctx, []wal.Entry{{Kind: wal.Noop}}); err != nil {
		return fmt.Errorf("the first record of log %x of shard %d: %w", l.logID, shard, err)
	}
	return nil
}

// Remove removes the log of a shard, with all that is in it.
func (s *Streams) Remove(ctx context.Context, shard millrace.ShardID) error {
	name := s.names.LogStream(shard)
	rctx, cancel := s.conn.Request(ctx, s.opts.Patience)
	defer cancel()
	if err := s.conn.JetStream().DeleteStream(rctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return errs.New(errs.Unavailable, "removing stream %s: %v", name, err)
	}
	return nil
}
