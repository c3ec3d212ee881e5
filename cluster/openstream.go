package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/errs"
)

const (
	apiTimeout  = 10 * time.Second
	openTimeout = 30 * time.Second
	// askAgain is when a request of a start that is not answered is made again: servers
	// that are choosing a leader answer it never.
	askAgain  = 5 * time.Second
	makeAgain = 100 * time.Millisecond
)

// OpenStream opens a stream, and makes it where it is not there. One that exists must
// be as wanted in all that could lose messages or show wrong ones (C2): errs.
// InvalidRequest names the setting that is not. Its metadata and placement are left
// as they are; what it may hold is made what is wanted. Servers that have just been
// started, or are started again, are waited for, 30 s at most.
func (c *Conn) OpenStream(ctx context.Context, want jetstream.StreamConfig) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	st, err := asked(ctx, func(ctx context.Context) (jetstream.Stream, error) { return c.js.Stream(ctx, want.Name) })
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		st, err = c.makeStream(ctx, want)
	}
	if err != nil {
		return nil, streamError("opening", want, err)
	}
	have := st.CachedInfo().Config
	if name, is, should := difference(have, want); name != "" {
		return nil, errs.New(errs.InvalidRequest, "stream %s has %s %s; it must be %s: set it so, or remove what is not ours", want.Name, name, is, should)
	}
	if have.MaxBytes != want.MaxBytes {
		have.MaxBytes = want.MaxBytes
		if st, err = asked(ctx, func(ctx context.Context) (jetstream.Stream, error) { return c.js.UpdateStream(ctx, have) }); err != nil {
			return nil, streamError("changing max_bytes of", want, err)
		}
	}
	return st, nil
}

// asked makes a request that may be made twice, again and again until it is answered or
// ctx ends.
func asked[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	for {
		once, cancel := context.WithTimeout(ctx, askAgain)
		answer, err := request(once)
		over := once.Err() != nil
		cancel()
		if err == nil || !over || ctx.Err() != nil {
			return answer, err
		}
	}
}

// makeStream makes a stream. A cluster refuses one for want of servers until its leader
// has heard from each, which is later than that there is a leader.
func (c *Conn) makeStream(ctx context.Context, want jetstream.StreamConfig) (jetstream.Stream, error) {
	again := time.NewTicker(makeAgain)
	defer again.Stop()
	var last error // what NATS said, not that time is over
	for {
		st, err := asked(ctx, func(ctx context.Context) (jetstream.Stream, error) { return c.js.CreateStream(ctx, want) })
		if ctx.Err() != nil && last != nil {
			return nil, last
		}
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another was quicker
			return asked(ctx, func(ctx context.Context) (jetstream.Stream, error) { return c.js.Stream(ctx, want.Name) })
		}
		if api, ok := errors.AsType[*jetstream.APIError](err); !ok || !missesServers(api) {
			return st, err
		}
		last = err
		select {
		case <-ctx.Done():
			return nil, last
		case <-again.C:
		}
	}
}

// difference finds a setting of a stream that is not as it must be.
func difference(have, want jetstream.StreamConfig) (name, is, should string) {
	differs := func(n string, h, w any) {
		if name == "" && h != w {
			name, is, should = n, fmt.Sprint(h), fmt.Sprint(w)
		}
	}
	unlimited := func(n int64) int64 { // 0 and -1 are the same
		if n <= 0 {
			return -1
		}
		return n
	}
	if !slices.Equal(have.Subjects, want.Subjects) {
		differs("subjects", fmt.Sprint(have.Subjects), fmt.Sprint(want.Subjects))
	}
	differs("storage", have.Storage, want.Storage)
	differs("retention", have.Retention, want.Retention)
	differs("discard", have.Discard, want.Discard)
	differs("max_age", have.MaxAge, want.MaxAge)
	differs("max_msgs", unlimited(have.MaxMsgs), unlimited(want.MaxMsgs))
	differs("max_msgs_per_subject", unlimited(have.MaxMsgsPerSubject), unlimited(want.MaxMsgsPerSubject))
	differs("max_msg_size", unlimited(int64(have.MaxMsgSize)), unlimited(int64(want.MaxMsgSize)))
	differs("compression", have.Compression, want.Compression)
	differs("allow_direct", have.AllowDirect, want.AllowDirect)
	differs("mirror_direct", have.MirrorDirect, want.MirrorDirect)
	differs("no_ack", have.NoAck, want.NoAck)
	differs("sealed", have.Sealed, want.Sealed)
	differs("deny_purge", have.DenyPurge, want.DenyPurge)
	differs("allow_rollup_hdrs", have.AllowRollup, want.AllowRollup)
	differs("allow_msg_ttl", have.AllowMsgTTL, want.AllowMsgTTL)
	differs("persist_mode", have.PersistMode, want.PersistMode)
	differs("mirror", have.Mirror != nil, false)
	differs("sources", len(have.Sources), 0)
	differs("subject_transform", have.SubjectTransform != nil, false)
	if have.Replicas < want.Replicas {
		differs("num_replicas", have.Replicas, want.Replicas)
	}
	return name, is, should
}

// The server's numbers of errors that are of the servers and their settings.
const (
	errNoPeers      jetstream.ErrorCode = 10005
	errNoReplicas   jetstream.ErrorCode = 10074
	errNoResources  jetstream.ErrorCode = 10023
	errNoStore      jetstream.ErrorCode = 10047
	errAccountStore jetstream.ErrorCode = 10002
)

// missesServers tells servers that the leader has not heard from since it leads from
// those that have no room; the server says so in words only.
func missesServers(err *jetstream.APIError) bool {
	return err.ErrorCode == errNoPeers &&
		(strings.Contains(err.Description, "peer offline") || strings.Contains(err.Description, "miscellaneous issue"))
}

func streamError(doing string, want jetstream.StreamConfig, err error) error {
	api, ok := errors.AsType[*jetstream.APIError](err)
	switch {
	case !ok:
		return errs.New(errs.Unavailable, "%s stream %s: %v", doing, want.Name, err)
	case missesServers(api):
		return errs.New(errs.Unavailable, "%s stream %s: it is to have %d replicas, and the leader of NATS has not heard from so many servers: %s", doing, want.Name, want.Replicas, api.Description)
	case api.ErrorCode == errNoPeers || api.ErrorCode == errNoReplicas:
		return errs.New(errs.InvalidRequest, "%s stream %s: it is to have %d replicas of %d bytes, and NATS has not so many servers with so much room: %s", doing, want.Name, want.Replicas, want.MaxBytes, api.Description)
	case api.ErrorCode == errNoResources || api.ErrorCode == errNoStore || api.ErrorCode == errAccountStore:
		return errs.New(errs.StorageFull, "%s stream %s: NATS cannot set %d bytes aside for it on %d servers (%s): give JetStream more room (max_file_store, an account's limit), or make the logs smaller (--log-max-size)", doing, want.Name, want.MaxBytes, want.Replicas, api.Description)
	case api.Code == 503:
		return errs.New(errs.Unavailable, "%s stream %s: %s", doing, want.Name, api.Description)
	}
	return errs.New(errs.InvalidRequest, "%s stream %s: %s", doing, want.Name, api.Description)
}
