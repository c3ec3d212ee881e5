package router

import (
	"slices"

	millrace "github.com/millrace/millrace"
)

// Cursor is where the reader stands, as text. For a read that stands in keyed
// state, the shards hold its snapshots from then on.
func (rd *Reader) Cursor() string { return rd.cursor().String() }

func (rd *Reader) cursor() *cursor {
	c := &cursor{table: rd.plan.Table.ID}
	for i, pr := range rd.parts {
		c.places = append(c.places, place{partition: pr.Bucket.Partition, bucket: pr.Bucket.Bucket, offset: pr.Start})
		if !pr.state && !pr.lake {
			continue
		}
		if c.state == nil {
			c.state = &cursorState{index: i, after: pr.After, file: pr.File, row: pr.Row}
		}
		c.state.end = i + 1
	}
	if c.state != nil {
		rd.fillState(c.state)
	}
	return c
}

// fillState adds what the state part of a cursor stands on.
func (rd *Reader) fillState(st *cursorState) {
	st.snapshots = rd.holdState()
	if rd.plan.history == nil {
		return
	}
	st.inLake = make([]bool, st.end-st.index)
	for i := range st.inLake {
		if rd.parts[st.index+i].lake {
			st.inLake[i], st.lake = true, rd.plan.history.snap.ID()
		}
	}
}

// CursorAfter is where a reader stands that has given the chunk's rows up to and
// including row i.
// REQUIRES: the chunk is the last one that Next gave.
func (rd *Reader) CursorAfter(c *Chunk, i int) string {
	if i == c.Rows-1 {
		return rd.Cursor()
	}
	cur := rd.cursor()
	at := slices.IndexFunc(rd.parts, func(pr *partReader) bool { return pr == c.part })
	if c.batch != nil {
		cur.places[at].offset = c.batch.Header.Base + millrace.Offset(c.row(i)) + 1
		return cur.String()
	}
	if c.far != nil && c.far.Kind == LogRows {
		cur.places[at].offset = millrace.Offset(runAt(c.far.At, i, 1)) + 1
		return cur.String()
	}
	if c.at != nil {
		cur.state.row = c.at[i] + 1
		return cur.String()
	}
	// The part was in its state when the chunk was read, though it may have been
	// read to the end since.
	if cur.state == nil || cur.state.index != at {
		end := at + 1
		if cur.state != nil {
			end = cur.state.end
		}
		cur.state = &cursorState{index: at, end: end}
		rd.fillState(cur.state)
	}
	cur.state.after = c.stateKey(i)
	return cur.String()
}

// holdState makes the shards hold the snapshots that the reader still needs. The
// reader goes on with its own use of them.
func (rd *Reader) holdState() map[millrace.ShardID]string {
	for _, pr := range rd.parts {
		if !pr.state || pr.Snapshot != "" {
			continue
		}
		pin, ok := rd.plan.snaps[pr.Shard]
		if !ok {
			continue
		}
		sh, err := rd.r.here(pr.Shard)
		if err != nil { // it has moved: the cursor names a snapshot that is gone
			continue
		}
		if pr.rows != nil {
			pr.held = pin.sn.Retain() // the walk under way goes on using it
		}
		id := sh.Hold(pin.sn, rd.plan.Table.ID, PageIdle, 0)
		delete(rd.plan.snaps, pr.Shard)
		for _, other := range rd.parts {
			if other.Shard == pr.Shard && other.state {
				other.Snapshot = id
			}
		}
	}
	out := map[millrace.ShardID]string{}
	for _, pr := range rd.parts {
		if pr.state && pr.Snapshot != "" {
			out[pr.Shard] = pr.Snapshot
			delete(rd.plan.snaps, pr.Shard) // its owner holds it for the cursor from now on
		}
	}
	return out
}
