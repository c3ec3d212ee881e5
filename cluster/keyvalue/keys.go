package keyvalue

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/cluster"
	"github.com/millrace/millrace/cluster/owner"
	"github.com/millrace/millrace/errs"
)

const (
	// keysBytes is the most that a bucket may hold.
	keysBytes = 256 << 20
	// deletedFor is how long it is remembered that a key was deleted.
	deletedFor = 24 * time.Hour
	// A key's operation, as NATS's key-value store marks it.
	operationHeader  = "KV-Operation"
	operationDeleted = "DEL"
)

// KeysOptions open keys.
type KeysOptions struct {
	// Bucket names them; cluster.Names.KeysBucket.
	Bucket string
	// Replicas of the bucket's stream; as cluster.Check found.
	Replicas int

	Conn   *cluster.Conn
	Logger *slog.Logger
}

// Keys are owner.Keys in a bucket of NATS's key-value store.
type Keys struct {
	conn   *cluster.Conn
	stream jetstream.Stream
	name   string // of the stream
	prefix string // of subjects
	log    *slog.Logger
}

var _ owner.Keys = (*Keys)(nil)

// OpenKeys opens a bucket, and makes it where there is none.
func OpenKeys(ctx context.Context, opts KeysOptions) (*Keys, error) {
	k := &Keys{conn: opts.Conn, name: "KV_" + opts.Bucket, prefix: "$KV." + opts.Bucket + ".", log: opts.Logger}
	var err error
	k.stream, err = opts.Conn.OpenStream(ctx, jetstream.StreamConfig{
		Name: k.name, Description: "who owns the shards of a Millrace cluster", Subjects: []string{k.prefix + ">"},
		Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew, MaxBytes: keysBytes, MaxMsgsPerSubject: 1,
		Replicas: max(1, opts.Replicas), AllowRollup: true, DenyDelete: true, AllowMsgTTL: true,
	})
	return k, err
}

// Create gives a key its first value.
func (k *Keys) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	return k.Update(ctx, key, value, 0)
}

// Update replaces a value.
func (k *Keys) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if err := errors.Join(owner.CheckKey(key), owner.CheckValue(key, value)); err != nil {
		return 0, err
	}
	return k.change(ctx, key, revision, func() (*nats.Msg, []jetstream.PublishOpt) {
		return &nats.Msg{Subject: k.prefix + key, Data: value}, nil
	}, func(e found) bool { return e.ok && string(e.Value) == string(value) })
}

// Delete removes a key. That it was there is remembered for a day.
func (k *Keys) Delete(ctx context.Context, key string, revision uint64) error {
	if err := owner.CheckKey(key); err != nil {
		return err
	}
	if revision == 0 {
		return errs.New(errs.InvalidValue, "key %q is to be deleted at revision 0", key)
	}
	_, err := k.change(ctx, key, revision, func() (*nats.Msg, []jetstream.PublishOpt) {
		m := nats.NewMsg(k.prefix + key)
		m.Header.Set(operationHeader, operationDeleted)
		return m, []jetstream.PublishOpt{jetstream.WithMsgTTL(deletedFor)}
	}, func(e found) bool { return !e.ok })
	return err
}

// Get reads a key.
func (k *Keys) Get(ctx context.Context, key string) (owner.Entry, bool, error) {
	if err := owner.CheckKey(key); err != nil {
		return owner.Entry{}, false, err
	}
	for {
		e, err := k.last(ctx, key)
		if err == nil {
			return e.Entry, e.ok, nil
		}
		if err := pause(ctx, k.conn.Done(), 20*time.Millisecond); err != nil {
			return owner.Entry{}, false, err
		}
	}
}

// found is what the stream has of a key.
type found struct {
	owner.Entry

	ok       bool   // it has a value
	sequence uint64 // of the last message, a deletion too; 0: there is none
}

// last asks the leader for a key's last message.
func (k *Keys) last(ctx context.Context, key string) (found, error) {
	ctx, cancel := k.conn.Request(ctx, readTimeout)
	defer cancel()
	m, err := k.stream.GetLastMsgForSubject(ctx, k.prefix+key)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return found{Entry: owner.Entry{Key: key}}, nil
	case err != nil:
		return found{}, errs.New(errs.Unavailable, "reading key %s of stream %s: %v", key, k.name, err)
	case m.Header.Get(operationHeader) != "":
		return found{Entry: owner.Entry{Key: key}, sequence: m.Sequence}, nil
	}
	return found{Entry: owner.Entry{Key: key, Value: m.Data, Revision: m.Sequence}, ok: true, sequence: m.Sequence}, nil
}

// change publishes a key's next message behind the one of a revision until it is there
// or cannot be. written says whether what is there is what was to be written.
func (k *Keys) change(ctx context.Context, key string, revision uint64, next func() (*nats.Msg, []jetstream.PublishOpt), written func(found) bool) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, errs.Wrap(errs.Unavailable, "keys", err)
	}
	expect, unanswered := revision, false
	for {
		sequence, outcome, err := k.send(ctx, expect, next)
		switch outcome {
		case published:
			return sequence, nil
		case refused:
			if !unanswered {
				return 0, err
			}
		case unheard:
			unanswered = true
		case taken:
		}
		if there, err := k.last(ctx, key); err == nil {
			switch {
			case unanswered && there.sequence > expect && written(there):
				return there.sequence, nil
			case there.Revision != revision, unanswered && there.sequence > expect:
				return 0, &owner.ConflictError{Key: key, Want: revision, Got: there.Revision}
			case outcome == taken && there.sequence > expect:
				expect = there.sequence // the key is absent, and was deleted by this message
				continue
			}
		}
		if err := pause(ctx, k.conn.Done(), 20*time.Millisecond); err != nil {
			if unanswered {
				return 0, &errs.Error{Code: errs.UnknownOutcome, Op: "keys", Err: err, Message: "NATS did not answer; whether key " + key + " was changed is not known"}
			}
			return 0, err
		}
	}
}

// send sends a message once.
func (k *Keys) send(ctx context.Context, expect uint64, next func() (*nats.Msg, []jetstream.PublishOpt)) (uint64, outcome, error) {
	ctx, cancel := k.conn.Request(ctx, apiTimeout)
	defer cancel()
	if ctx.Err() != nil {
		return 0, taken, nil // nothing was sent; it is tried again
	}
	m, opts := next()
	opts = append(opts, jetstream.WithExpectStream(k.name), jetstream.WithExpectLastSequencePerSubject(expect), jetstream.WithRetryAttempts(0))
	ack, err := k.conn.JetStream().PublishMsg(ctx, m, opts...)
	api, answered := errors.AsType[*jetstream.APIError](err)
	switch {
	case err == nil:
		return ack.Sequence, published, nil
	case answered && wrongSequence(api), errors.Is(err, jetstream.ErrNoStreamResponse):
		return 0, taken, nil
	case answered && api.ErrorCode == errStore:
		return 0, unheard, err
	case answered:
		return 0, refused, errs.New(errs.Unavailable, "writing to stream %s: %v", k.name, err)
	}
	return 0, unheard, err
}
