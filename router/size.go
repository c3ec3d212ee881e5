package router

import (
	"context"

	millrace "github.com/millrace/millrace"
)

// Size is how much a plan reads: the rows, exactly when it has no filter, else -1;
// and about how many stored bytes, -1 when that is not known.
func (r *Router) Size(ctx context.Context, p *Plan) (rows, bytes int64, err error) {
	if p.Follow || p.Filtered() {
		return -1, -1, nil
	}
	// Of a plan that was opened from a ticket nothing is known yet.
	unseen := refs(p.Parts, func(part *Part) bool {
		return !part.looked && !part.State && !part.Overlay && part.Start < part.End
	})
	if err := r.look(ctx, p, Question{}, unseen); err != nil {
		return 0, 0, err
	}
	for i := range p.Parts {
		part := &p.Parts[i]
		if part.Lake && !part.Overlay {
			n, size, ok := p.lakeSize(part)
			if !ok {
				return -1, -1, nil
			}
			rows += n
			if bytes >= 0 {
				bytes += size
			}
		}
		if part.State || part.Overlay {
			if !part.looked { // held under an id, and not looked up for this
				return -1, -1, nil
			}
			rows, bytes = rows+part.look.Rows, -1
		}
		n := int64(part.End - part.Start)
		rows += n
		if n == 0 || bytes < 0 {
			continue
		}
		if l := &part.look; l.End > l.Kept {
			bytes += int64(float64(l.Bytes) / float64(l.End-l.Kept) * float64(n))
		}
	}
	if p.Limit >= 0 && rows > p.Limit {
		if rows > 0 && bytes > 0 {
			bytes = int64(float64(bytes) / float64(rows) * float64(p.Limit))
		}
		rows = p.Limit
	}
	return rows, bytes, nil
}

// lakeSize is how many rows and stored bytes the lake has of a part, as its metadata say;
// not ok when they do not.
func (p *Plan) lakeSize(part *Part) (rows, bytes int64, ok bool) {
	if p.history.files == nil {
		return 0, 0, false
	}
	for _, f := range p.filesOf(part)[part.File:] {
		if f.Deleted < 0 {
			return 0, 0, false
		}
		rows, bytes = rows+f.Rows-f.Deleted, bytes+f.Bytes
	}
	return rows, bytes, part.Row == 0
}

// LetGo ends the holding of a plan's snapshots, when its tickets are given to
// nobody after all.
func (r *Router) LetGo(p *Plan) {
	for sh, id := range p.heldIDs() {
		r.unhold(sh, id)
	}
}

// Standing is where a reader stands in a bucket.
type Standing struct {
	Key       string
	Partition string // "" on tables without partitions
	Bucket    uint16
	Next      millrace.Offset // the next record of the log
	// State says that keyed state, or rows of the lake, are to be read before the log.
	State         bool
	HighWatermark millrace.Offset
}

// Standings is where the reader stands in each bucket, in the plan's order, and
// the ends of their logs as of now.
func (rd *Reader) Standings(ctx context.Context) ([]Standing, error) {
	out := make([]Standing, 0, len(rd.parts))
	ends, err := rd.ends(ctx)
	if err != nil {
		return nil, err
	}
	history := map[string]bool{} // partitions of which files of no one bucket are unread
	for _, pr := range rd.parts {
		if pr.Bucket.Bucket == NoBucket && pr.lake {
			history[pr.Partition] = true
		}
	}
	for _, pr := range rd.parts {
		if pr.Bucket.Bucket == NoBucket {
			continue // which has no log
		}
		end, ok := ends[pr]
		if !ok {
			continue // it is about to leave
		}
		out = append(out, Standing{Key: pr.Key, Partition: pr.Partition, Bucket: pr.Bucket.Bucket, Next: pr.Start, State: pr.state || pr.lake || history[pr.Partition], HighWatermark: end})
	}
	return out, nil
}
