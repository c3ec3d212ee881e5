package owner

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"github.com/millrace/millrace/errs"
)

// aliveAfter is how many renewals of a session show that its process is there: a process
// that ends may have one on its way.
const aliveAfter = 3

// predecessor is a session that is there under this process's name when it starts. One of
// this data directory is of no one any more, since the directory is locked. Any other may be
// of a process that is cut off and still answers reads: it may be taken over only when
// others could end it too (N2).
type predecessor struct {
	own      []string // incarnations of this data directory
	revision uint64
	since    time.Duration // when the revision was first seen; on the boot clock
	renewals int
}

// lives says whether the session is not to be taken over yet. The error says that it
// never is, since its process is there.
func (p *predecessor) lives(e Entry, now time.Duration) (bool, error) {
	var s Session
	if err := json.Unmarshal(e.Value, &s); err == nil && slices.Contains(p.own, s.Incarnation) {
		return false, nil
	}
	switch {
	case p.revision == 0:
		p.revision, p.since = e.Revision, now
	case e.Revision > p.revision: // a leader that was deposed may tell an older one
		p.revision, p.since = e.Revision, now
		p.renewals++
	}
	if p.renewals >= aliveAfter {
		return true, errOneName(s.Worker)
	}
	return now-p.since <= TTL+margin, nil
}

func errOneName(worker string) error {
	return errs.New(errs.Unavailable, "another process runs as worker %s: each needs a name, or a data directory, of its own", worker)
}

// remember keeps the incarnation in the data directory, for the next start.
func (m *Manager) remember(ctx context.Context, incarnation string) {
	if m.o.Remember == nil {
		return
	}
	if err := m.o.Remember(incarnation); err != nil {
		m.o.Logger.WarnContext(ctx, "incarnation not kept: the next start will wait until this session has ended", slog.Any("err", err))
	}
}
