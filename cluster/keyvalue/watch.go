package keyvalue

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/cluster/owner"
	"github.com/millrace/millrace/errs"
)

const (
	// A consumer that says nothing for two heartbeats is made anew, on whichever server.
	watchHeartbeat = time.Second
	watchExpiry    = 5 * time.Second
	watchInactive  = 30 * time.Second
)

// watcher is one call of Watch.
type watcher struct {
	keys   *Keys
	prefix string
	fn     func(owner.Event) error
	told   map[string]uint64 // the revisions that fn knows
	ready  bool              // fn knows that it is up to date
	failed error             // of fn
}

// Watch tells fn of the keys under prefix, by a consumer of the stream. When that is
// lost, the last message of each key is read anew, and fn told what is different.
func (k *Keys) Watch(ctx context.Context, prefix string, fn func(owner.Event) error) error {
	if err := owner.CheckPrefix(prefix); err != nil {
		return err
	}
	w := &watcher{keys: k, prefix: prefix, fn: fn, told: map[string]uint64{}}
	for {
		begun := time.NewTimer(time.Second)
		err := w.consume(ctx)
		if w.failed != nil || ctx.Err() != nil {
			begun.Stop()
			return errors.Join(w.failed, ctx.Err())
		}
		k.log.DebugContext(ctx, "watch of keys begun anew", slog.String("prefix", prefix), slog.Any("err", err))
		select {
		case <-begun.C: // at most once a second, at once when it had held longer
		case <-k.conn.Done():
			return errs.New(errs.Draining, "the connection to NATS is closed")
		case <-ctx.Done():
		}
		begun.Stop()
	}
}

// consume reads the keys as they are and follows them until the consumer is lost.
func (w *watcher) consume(ctx context.Context) error {
	reqCtx, cancel := w.keys.conn.Request(ctx, apiTimeout)
	defer cancel()
	consumer, err := w.keys.stream.CreateConsumer(reqCtx, jetstream.ConsumerConfig{
		FilterSubject: w.keys.prefix + w.prefix + ">", DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: watchInactive,
	})
	if err != nil {
		return err
	}
	left := consumer.CachedInfo().NumPending
	messages, err := consumer.Messages(jetstream.PullExpiry(watchExpiry), jetstream.PullHeartbeat(watchHeartbeat))
	if err != nil {
		return err
	}
	defer w.drop(consumer.CachedInfo().Name)
	defer messages.Stop()
	there := map[string]bool{}
	if left == 0 {
		if err := w.upToDate(ctx, there); err != nil {
			return err
		}
	}
	for expected := uint64(1); ; expected++ {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if meta.Sequence.Consumer != expected {
			return errs.New(errs.Unavailable, "message %d of a watch came as message %d", expected, meta.Sequence.Consumer)
		}
		if err := w.take(m, meta.Sequence.Stream, there); err != nil {
			return err
		}
		if left > 0 {
			if left--; left == 0 || meta.NumPending == 0 {
				left = 0
				if err := w.upToDate(ctx, there); err != nil {
					return err
				}
			}
		}
	}
}

// take tells of one message, unless it is known.
func (w *watcher) take(m jetstream.Msg, sequence uint64, there map[string]bool) error {
	key := strings.TrimPrefix(m.Subject(), w.keys.prefix)
	deleted := m.Headers().Get(operationHeader) != ""
	there[key] = !deleted
	known, was := w.told[key]
	if sequence <= known || deleted && !was {
		return nil
	}
	e := owner.Event{Kind: owner.Put, Entry: owner.Entry{Key: key, Value: m.Data(), Revision: sequence}}
	if deleted {
		e.Kind, e.Value = owner.Deleted, nil
		delete(w.told, key)
	} else {
		w.told[key] = sequence
	}
	return w.tell(e)
}

// upToDate tells of the keys that are gone without a trace, and, the first time, that
// everything is told. The server of the consumer may be behind, so that it does not have a
// key yet that is known here: the leader says what is gone.
func (w *watcher) upToDate(ctx context.Context, there map[string]bool) error {
	for _, key := range slices.Sorted(maps.Keys(w.told)) {
		if there[key] {
			continue
		}
		last, err := w.keys.last(ctx, key)
		if err != nil {
			return err
		}
		if last.ok {
			continue
		}
		revision := max(w.told[key]+1, last.sequence)
		delete(w.told, key)
		if err := w.tell(owner.Event{Kind: owner.Deleted, Entry: owner.Entry{Key: key, Revision: revision}}); err != nil {
			return err
		}
	}
	if w.ready {
		return nil
	}
	w.ready = true
	return w.tell(owner.Event{Kind: owner.UpToDate})
}

func (w *watcher) tell(e owner.Event) error {
	w.failed = w.fn(e)
	return w.failed
}

// drop removes the consumer; when that fails, the server does it by itself.
func (w *watcher) drop(name string) {
	ctx, cancel := w.keys.conn.Request(context.Background(), time.Second)
	defer cancel()
	_ = w.keys.stream.DeleteConsumer(ctx, name)
}
