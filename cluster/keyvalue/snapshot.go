package keyvalue

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
)

// partBytes is how much of the entries, without compression, goes into a part of a
// snapshot, more when one entry alone has more.
const partBytes = 256 << 10

// A snapshot has subjects <snapshot>.<revision, 20 digits>.<writer, 8 hex digits>.<part>,
// parts from 00001 and then "end". The writer is drawn for each, so two processes that
// write a snapshot of one revision do not mix their parts.
type snapshotName struct {
	revision uint64
	writer   string
}

func (s *Store) snapshotSubject(n snapshotName, part string) string {
	return fmt.Sprintf("%s.%020d.%s.%s", s.names.snapshot, n.revision, n.writer, part)
}

func partName(i int) string { return fmt.Sprintf("%05d", i) }

// snapshots lists the snapshots in the stream, newest first, and those without an end,
// which somebody is writing or has not finished.
func (s *Store) snapshots(ctx context.Context) (whole, unfinished []snapshotName, err error) {
	ctx, cancel := s.conn.Request(ctx, apiTimeout)
	defer cancel()
	info, err := s.stream.Info(ctx, jetstream.WithSubjectFilter(s.names.snapshot+".>"))
	if err != nil {
		return nil, nil, s.unavailable("listing the snapshots of", err)
	}
	ended := map[snapshotName]bool{}
	for subject := range info.State.Subjects {
		words := strings.Split(strings.TrimPrefix(subject, s.names.snapshot+"."), ".")
		if len(words) != 3 {
			continue
		}
		revision, err := strconv.ParseUint(words[0], 10, 64)
		if err != nil {
			continue
		}
		n := snapshotName{revision, words[1]}
		ended[n] = ended[n] || words[2] == "end"
	}
	for n, end := range ended {
		if end {
			whole = append(whole, n)
		} else {
			unfinished = append(unfinished, n)
		}
	}
	slices.SortFunc(whole, func(a, b snapshotName) int {
		return cmp.Or(cmp.Compare(b.revision, a.revision), cmp.Compare(a.writer, b.writer))
	})
	return whole, unfinished, nil
}

// readSnapshot reads the newest snapshot that can be read; revision 0 when there is none
// at all. While it reads, others may compact and purge what it reads: then there is a newer one.
func (s *Store) readSnapshot(ctx context.Context) (revision uint64, entries map[string]catalog.Entry, err error) {
	var whole []snapshotName
	for {
		before := whole
		if whole, _, err = s.snapshots(ctx); err != nil {
			return 0, nil, err
		}
		revision, entries, err = s.readNewest(ctx, whole)
		if !errs.Is(err, errs.CorruptData) || slices.Equal(before, whole) {
			return revision, entries, err
		}
	}
}

func (s *Store) readNewest(ctx context.Context, whole []snapshotName) (uint64, map[string]catalog.Entry, error) {
	var damage error
	for _, n := range whole {
		entries, err := s.readOne(ctx, n)
		if err == nil {
			return n.revision, entries, nil
		}
		if !errs.Is(err, errs.CorruptData) {
			return 0, nil, err
		}
		s.log.ErrorContext(ctx, "snapshot of the catalog damaged, using the one before", slog.Any("err", err))
		damage = errors.Join(damage, err)
	}
	if damage == nil {
		return 0, map[string]catalog.Entry{}, nil
	}
	// All commits may be there still.
	first, err := s.next(ctx, 1)
	if err != nil {
		return 0, nil, err
	}
	if first != nil {
		if m, err := s.coder.decode(first.Data, kindCommit, s.where(first.Sequence)); err == nil && m.previous == 0 {
			return 0, map[string]catalog.Entry{}, nil
		}
	}
	return 0, nil, damage
}

// readOne reads one snapshot, and checks it.
func (s *Store) readOne(ctx context.Context, n snapshotName) (map[string]catalog.Entry, error) {
	m, _, err := s.readPart(ctx, n, "end", kindEnd)
	if err != nil {
		return nil, err
	}
	end, ok := decodeEnd(m.payload)
	if !ok {
		return nil, errs.New(errs.CorruptData, "snapshot %d of stream %s: its end does not decode", n.revision, s.names.stream)
	}
	entries, sum := map[string]catalog.Entry{}, uint32(0)
	for i := range int(end.parts) {
		part, b, err := s.readPart(ctx, n, partName(i+1), kindPart)
		if err != nil {
			return nil, err
		}
		if part.id != m.id || !decodeEntries(part.payload, entries) {
			return nil, errs.New(errs.CorruptData, "snapshot %d of stream %s: its part %d does not decode", n.revision, s.names.stream, i+1)
		}
		sum = addSum(sum, b)
	}
	if len(entries) != int(end.entries) || sum != end.sum {
		return nil, errs.New(errs.CorruptData, "snapshot %d of stream %s: it has %d entries with sum %08x, not %d with %08x", n.revision, s.names.stream, len(entries), sum, end.entries, end.sum)
	}
	return entries, nil
}

func (s *Store) readPart(ctx context.Context, n snapshotName, part string, kind byte) (message, []byte, error) {
	ctx, cancel := s.conn.Request(ctx, readTimeout)
	defer cancel()
	raw, err := s.stream.GetLastMsgForSubject(ctx, s.snapshotSubject(n, part))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return message{}, nil, errs.New(errs.CorruptData, "snapshot %d of stream %s: its part %s is missing", n.revision, s.names.stream, part)
	}
	if err != nil {
		return message{}, nil, s.unavailable("reading a snapshot of", err)
	}
	m, err := s.coder.decode(raw.Data, kind, s.where(raw.Sequence))
	if err == nil && m.previous != n.revision {
		err = errs.New(errs.CorruptData, "%s: it is of snapshot %d, not %d", s.where(raw.Sequence), m.previous, n.revision)
	}
	return m, raw.Data, err
}

// writeSnapshot writes a snapshot of everything that this process has read.
func (s *Store) writeSnapshot(ctx context.Context) (snapshotName, error) {
	entries, revision := s.sorted()
	m := message{kind: kindPart, previous: revision}
	if _, err := rand.Read(m.id[:]); err != nil {
		return snapshotName{}, errs.Wrap(errs.Internal, "keyvalue.Compact", err)
	}
	n := snapshotName{revision, fmt.Sprintf("%x", m.id[:4])}
	end := snapshotEnd{entries: uint32(len(entries))}
	put := func(part string) ([]byte, error) {
		b := s.coder.encode(m)
		if err := s.compact.step("part"); err != nil {
			return nil, err
		}
		ctx, cancel := s.conn.Request(ctx, apiTimeout)
		defer cancel()
		if _, err := s.conn.JetStream().Publish(ctx, s.snapshotSubject(n, part), b, jetstream.WithExpectStream(s.names.stream)); err != nil {
			return nil, s.unavailable("writing a snapshot of", err)
		}
		return b, nil
	}
	for i, e := range entries {
		m.payload = appendEntry(m.payload, e)
		if i+1 < len(entries) && len(m.payload)+len(entries[i+1].Key)+len(entries[i+1].Value) < partBytes {
			continue
		}
		end.parts++
		b, err := put(partName(int(end.parts)))
		if err != nil {
			return n, err
		}
		end.sum = addSum(end.sum, b)
		m.payload = m.payload[:0]
	}
	m.kind, m.payload = kindEnd, end.encode()
	_, err := put("end")
	return n, err
}
