package flightsvc

import (
	"errors"
	"io"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/router"
)

// follow sends records as they come, for ever or to the plan's limit, and a sign of
// life with each bucket's place while none come.
func (g *getStream) follow() error {
	t := &tail{getStream: g, told: map[string]router.Standing{}}
	if err := t.beat(true); err != nil {
		return err
	}
	due := g.s.o.Clock.Now().Add(g.plan.Heartbeat)
	for {
		c, err := g.rd.Next(g.ctx, due.Sub(g.s.o.Clock.Now()))
		if errors.Is(err, io.EOF) {
			return g.sendStats()
		}
		if err != nil {
			return err
		}
		if c != nil {
			key := c.BucketKey
			t.told[key] = router.Standing{Next: c.Next, State: c.Base == millrace.NoOffset}
			if err := g.sendChunk(c); err != nil {
				return err
			}
		}
		if now := g.s.o.Clock.Now(); !now.Before(due) {
			due = now.Add(g.plan.Heartbeat)
			if err := t.beat(false); err != nil {
				return err
			}
		}
	}
}

// tail is a stream without end, and what its client was told of each bucket.
type tail struct {
	*getStream
	told map[string]router.Standing // Next and State
}

// beat sends a batch without rows for each bucket whose place the client does not
// know, for all of them at the start, and for at least one.
func (t *tail) beat(all bool) error {
	if !all {
		// A bucket that was never written to does not notice that its table is gone.
		if _, err := t.s.o.Catalog.TableByID(t.ctx, t.plan.Table.ID); err != nil {
			return err
		}
	}
	standings, err := t.rd.Standings(t.ctx)
	if err != nil {
		return err
	}
	sent := false
	for i, st := range standings {
		told, ok := t.told[st.Key]
		known := ok && told.Next == st.Next && told.State == st.State
		if known && !all && (sent || i < len(standings)-1) {
			continue
		}
		sent = true
		t.told[st.Key] = router.Standing{Next: st.Next, State: st.State}
		m := batchMeta{partition: st.Partition, bucket: st.Bucket, base: millrace.NoOffset, next: st.Next, hw: st.HighWatermark, state: st.State}
		if err := t.sendEmpty(m.append(nil)); err != nil {
			return err
		}
	}
	return nil
}
