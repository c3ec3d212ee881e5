package owner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
)

// firstSigns is how long a process that is there, and has no session, takes at the most
// to begin one.
const firstSigns = 2 * renewEvery

// Alive says which processes are members: those whose session is renewed, or begun,
// while it looks. It looks for a few seconds where there are no sessions, and else until
// each was renewed, or for so long that those which are left have ended.
func Alive(ctx context.Context, keys Keys) ([]string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := errors.New("seen enough")
	silent, alive := map[string]bool{}, map[string]bool{}
	looked := errors.New("looked long enough")
	var timer *time.Timer
	upToDate := false
	end, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err := keys.Watch(end, sessionPrefix, func(e Event) error {
		name := strings.TrimPrefix(e.Key, sessionPrefix)
		switch {
		case e.Kind == UpToDate:
			upToDate = true
			long := TTL + time.Second
			if len(silent) == 0 {
				long = firstSigns
			}
			timer = time.AfterFunc(long, func() { stop(looked) })
		case e.Kind == Put && upToDate:
			alive[name] = true
			if delete(silent, name); len(silent) == 0 {
				return over
			}
		case e.Kind == Put:
			silent[name] = true
		case e.Kind == Deleted:
			delete(silent, name)
		}
		return nil
	})
	if timer != nil {
		timer.Stop()
	}
	if err != nil && !errors.Is(err, over) && !errors.Is(context.Cause(end), looked) {
		return nil, err
	}
	return slices.Sorted(maps.Keys(alive)), nil
}
