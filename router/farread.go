package router

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/segment"
)

// farForm is what the owner of a shard is asked to read: a plan as tickets carry it, whose
// parts are all of that shard.
type farForm struct {
	Plan       *planForm
	Count      int // parts
	Background bool
	Begun      bool // rows were given: it waits longer for memory than one that begins
}

// farForm is the form of a plan.
func (r *Router) farForm(p *Plan, background, begun bool) ([]byte, error) {
	b, err := json.Marshal(farForm{Plan: p.form(false, time.Time{}), Count: len(p.Parts), Background: background, Begun: begun})
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "router: a plan does not encode", err)
	}
	return pack(b), nil
}

// openForm is the plan of a form, for a shard that is here.
func (r *Router) openForm(ctx context.Context, id millrace.ShardID, form []byte) (p *Plan, f farForm, err error) {
	b, err := unpack(form)
	if err != nil || json.Unmarshal(b, &f) != nil || f.Plan == nil || f.Plan.Version < planFormVersion || f.Plan.Version > lakePlanFormVersion {
		return nil, f, errs.New(errs.Internal, "a plan of another process does not read")
	}
	if p, err = r.planOf(ctx, f.Plan, true); err != nil {
		return nil, f, err
	}
	if len(p.Parts) != f.Count || slices.ContainsFunc(p.Parts, func(part Part) bool { return part.Shard != id || part.LakeOnly }) {
		return nil, f, errs.New(errs.Internal, "shard %d is asked for what another one has", id)
	}
	return p, f, nil
}

// FarRead is a read of parts of a shard that is here, for another process.
type FarRead struct {
	rd   *Reader
	told []Place
	out  []*Frame // made and not given
	end  bool
	idle bool // there was nothing when it looked last

	shard millrace.ShardID
	held  []string // ids of snapshots that the parts named
}

// OpenFarRead opens what Reader asks the owner of a shard for.
func (r *Router) OpenFarRead(ctx context.Context, id millrace.ShardID, form []byte) (*FarRead, error) {
	p, asked, err := r.openForm(ctx, id, form)
	if err != nil {
		return nil, err
	}
	held, err := r.pinHeld(p, id)
	if err != nil {
		p.Close()
		return nil, err
	}
	rd := r.Open(p)
	rd.background, rd.begun = asked.Background, asked.Begun
	f := &FarRead{rd: rd, shard: id, held: held, told: make([]Place, len(rd.parts))}
	for i, pr := range rd.parts {
		f.told[i] = placeOf(pr)
	}
	return f, nil
}

// pinHeld makes a plan stand on the held snapshots that its parts name as long as it is
// read, however long that takes.
func (r *Router) pinHeld(p *Plan, id millrace.ShardID) (held []string, err error) {
	for i := range p.Parts {
		part := &p.Parts[i]
		if part.Snapshot == "" {
			continue
		}
		if _, is := p.snaps[id]; !is {
			sh, err := r.here(id)
			if err != nil {
				return nil, err
			}
			sn, err := sh.Held(part.Snapshot)
			if err != nil {
				return nil, err
			}
			p.snaps[id] = pinned{sn: sn}
			held = append(held, part.Snapshot)
		}
		part.Snapshot = ""
	}
	return held, nil
}

// Touch uses the snapshots that are read, so that they are held while that is done.
func (f *FarRead) Touch() {
	for _, id := range f.held {
		if sh, err := f.rd.r.here(f.shard); err == nil {
			if sn, err := sh.Held(id); err == nil {
				sn.Release()
			}
		}
	}
}

// Close ends the read.
func (f *FarRead) Close() error { return f.rd.Close() }

// Next is the next frame; nil and no error when there is none for a while. After the one
// that is the end nothing comes.
func (f *FarRead) Next(ctx context.Context) (*Frame, error) {
	for len(f.out) == 0 {
		wait := time.Duration(0)
		if f.idle {
			wait = farIdle
		}
		c, err := f.rd.Next(ctx, wait)
		was := f.idle
		f.idle = err == nil && c == nil
		switch {
		case err == nil && c != nil:
			// The room of the chunk is not kept until its frames are sent: that waits for who
			// reads them, who may wait for room of the same process. There are never more of
			// them than of one chunk for each read of another process.
			err = f.give(c)
			c.Release()
			if err != nil {
				return nil, err
			}
			f.out[len(f.out)-1].Stats = f.rd.stats // with what the chunk cost, which its release counts
		case err == nil:
			f.moved(len(f.rd.parts))
			if !was || len(f.out) > 0 {
				f.out = append(f.out, &Frame{Idle: true, Stats: f.rd.stats})
			}
			if len(f.out) == 0 {
				return nil, nil
			}
		case isEOF(err) && !f.end:
			f.moved(len(f.rd.parts))
			f.out = append(f.out, &Frame{End: true, More: f.rd.left == 0 && f.rd.more(ctx), Stats: f.rd.stats})
			f.end = true
		default:
			return nil, err
		}
	}
	out := f.out[0]
	f.out = f.out[1:]
	return out, nil
}

// Part is the part whose turn it is: of an error, the one that it is of.
func (f *FarRead) Part() int { return f.rd.turn }

// moved tells of the first n parts that stand elsewhere than was told.
func (f *FarRead) moved(n int) {
	for i, pr := range f.rd.parts[:n] {
		if at := placeOf(pr); !at.equal(&f.told[i]) {
			f.told[i] = at
			at.After = slices.Clone(at.After)
			f.out = append(f.out, &Frame{Part: i, Place: at, Stats: f.rd.stats})
		}
	}
}

// give makes frames of a chunk.
func (f *FarRead) give(c *Chunk) error {
	i := slices.Index(f.rd.parts, c.part)
	if !f.rd.plan.Follow || c.kind() != LogRows {
		f.moved(i) // those before it are done, or with what comes before the log
	}
	codec := segment.Stored
	if f.rd.plan.CodecSet {
		codec = f.rd.plan.Codec
	}
	ships, err := c.Ship(codec, farBody)
	if err != nil {
		return err
	}
	kind := c.kind()
	from := 0
	for k, s := range ships {
		fr := &Frame{
			Part: i, Kind: kind, Rows: s.Rows, Base: s.Base, Next: s.Next, High: c.HighWatermark, Micros: s.Micros, Message: s.Message,
			Place: placeOf(c.part), Stats: f.rd.stats,
		}
		if kind == StateRows || kind == LakeRows {
			fr.Base = millrace.NoOffset
		}
		if err := c.rows(fr, from); err != nil {
			return err
		}
		if k < len(ships)-1 {
			fr.cut(fr.Rows)
		}
		f.told[i] = fr.Place
		f.out = append(f.out, fr)
		from += s.Rows
	}
	return nil
}

// kind is what the rows of a chunk are of.
func (c *Chunk) kind() FrameKind {
	switch {
	case c.batch != nil && c.stands:
		return TailRows
	case c.batch != nil:
		return LogRows
	case c.at != nil:
		return LakeRows
	default:
		return StateRows
	}
}

// rows tells of each of a frame's rows, which are those of the chunk from a row on.
func (c *Chunk) rows(f *Frame, from int) error {
	switch f.Kind {
	case LogRows, TailRows:
		h := &c.batch.Header
		if c.sel == nil {
			f.At = []Run{{First: int64(h.Base) + int64(c.row(from)), Rows: f.Rows}}
		} else {
			f.At = runsOf(f.Rows, 1, func(i int) int64 { return int64(h.Base) + int64(c.row(from+i)) })
		}
		if len(h.Times) == 1 {
			f.Times = []Run{{First: h.Times[0].Micros, Rows: f.Rows}}
		} else {
			f.Times = runsOf(f.Rows, 0, func(i int) int64 { return h.TimeAt(c.row(from + i)) })
		}
		all, err := c.batch.Payload.Changes()
		if err != nil || all == nil || c.rd.plan.View == BinlogView {
			return err
		}
		f.Changes = make([]millrace.ChangeType, f.Rows)
		for i := range f.Changes {
			f.Changes[i] = all[c.row(from+i)]
		}
	case LakeRows:
		f.At = runsOf(f.Rows, 1, func(i int) int64 { return c.at[from+i] })
	case NoRows:
	case StateRows:
		for i := range f.Rows {
			f.Keys = append(f.Keys, c.stateKey(from+i)...)
			f.Ends = append(f.Ends, len(f.Keys))
		}
	}
	return nil
}
