package wal

import (
	"crypto/rand"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Clock tells the time.
type Clock interface{ Now() time.Time }

// Options are the settings and components of a Files.
type Options struct {
	// Settings.
	ClusterID ClusterID
	// Shards is the number of shards; it may grow from one start to the next. A
	// directory that has more keeps them.
	Shards int
	// RotateBytes is the size at which the next file is begun; default 64 MiB.
	RotateBytes int64

	// Begin makes the logs of some shards begin anew, each behind a tail, as after a loss
	// that was accepted; what the files hold of them is not read any more. A tail has an id
	// of its own, and is at or behind the end of what there was.
	Begin map[millrace.ShardID]Tail

	// Components; each may be nil.
	Clock      Clock // for the duration of fsyncs; without one they are not measured
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Random     io.Reader // where log ids come from; default crypto/rand
}

const (
	defaultRotateBytes = 64 << 20
	maxRotateBytes     = 1 << 30 // offsets in frames are 32 bits
)

func (o *Options) ensureDefaults() error {
	if o.RotateBytes == 0 {
		o.RotateBytes = defaultRotateBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	if o.Shards < 1 || o.Shards > noShard {
		return errs.New(errs.InvalidRequest, "a log needs 1 to %d shards, not %d", noShard, o.Shards)
	}
	if o.RotateBytes < 0 || o.RotateBytes > maxRotateBytes {
		return errs.New(errs.InvalidRequest, "log files rotate at up to %d bytes, not %d", maxRotateBytes, o.RotateBytes)
	}
	return nil
}
