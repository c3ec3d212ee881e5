package router

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

const (
	// farBody is about the longest body of a message between processes.
	farBody = 3 << 20
	// farIdle is how long an owner waits for records before it tells where parts stand.
	farIdle = 500 * time.Millisecond
)

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// farStream reads the parts of a plan that are of one shard elsewhere. Its goroutine asks
// the owner, and asks again from where it stands when the connection breaks or the shard
// moves; it holds a frame in hand and one in the channel, so a slow reader holds up its
// own stream only.
type farStream struct {
	rd     *Reader
	id     millrace.ShardID
	parts  []*partReader // by the number they were asked for with
	frames chan farFrame
	end    context.CancelFunc
	peeked *farFrame // taken from the channel, and not for its turn yet
	ended  bool      // nothing comes any more
	idle   bool      // its owner had nothing more when it was heard of last
	begun  bool      // rows were given; the goroutine's own
	stats  Stats     // as counted
	base   Stats     // of connections before; the goroutine's own
}

// farFrame is what the goroutine hands over: a frame, or how the stream ended.
type farFrame struct {
	f     *Frame
	moved bool // the shard is here now
	err   error
	part  int // of which it is
}

// openFar begins to read all parts of a shard that is elsewhere, from where they stand.
func (rd *Reader) openFar(id millrace.ShardID) {
	if old := rd.far[id]; old != nil {
		old.end()
	}
	ctx, cancel := context.WithCancel(rd.plan.asked.In(context.Background()))
	s := &farStream{rd: rd, id: id, frames: make(chan farFrame, 1), end: cancel, begun: rd.midst()}
	plan := *rd.plan
	plan.Parts, plan.snaps, plan.Limit = nil, nil, rd.left
	for _, pr := range rd.parts {
		if pr.Shard != id || pr.LakeOnly || pr.local() || !plan.Follow && pr.done() {
			continue
		}
		if err := rd.closeFile(pr); err != nil {
			rd.r.o.Logger.Warn("a file of the lake does not close", errAttr(err))
		}
		pr.far = s
		part := pr.Part
		part.Lake, part.State = pr.lake, pr.state
		s.parts, plan.Parts = append(s.parts, pr), append(plan.Parts, part)
	}
	if rd.far == nil {
		rd.far = map[millrace.ShardID]*farStream{}
	}
	rd.far[id] = s
	go s.run(ctx, &plan)
}

// followFar begins to read the parts that are elsewhere and not being read yet.
func (rd *Reader) followFar() {
	var ids []millrace.ShardID
	for _, pr := range rd.parts {
		if pr.far == nil && !pr.done() && rd.away(pr) && !slices.Contains(ids, pr.Shard) {
			ids = append(ids, pr.Shard)
		}
	}
	for _, id := range ids {
		rd.openFar(id)
	}
}

// local says whether a part reads keyed state of a snapshot that is open here: it goes on
// with that, wherever its shard is.
func (pr *partReader) local() bool {
	return pr.state && (pr.Snapshot == "" || pr.rows != nil) && !pr.Overlay && !pr.lake
}

// done says whether everything of a bounded part was given.
func (pr *partReader) done() bool {
	return !pr.lake && !pr.Overlay && !pr.state && pr.End != millrace.NoOffset && pr.Start >= pr.End
}

// history says whether there are rows of a part to read before its log.
func (pr *partReader) history() bool { return pr.lake || pr.Overlay || pr.state }

// run reads frames until all were read, or the stream is ended.
func (s *farStream) run(ctx context.Context, p *Plan) {
	defer close(s.frames)
	index := indexes(len(p.Parts)) // of what is asked for, among the stream's parts
	var wait pauses
	for {
		sh, rem := s.rd.r.o.Owners.Owner(s.id)
		if sh != nil {
			s.push(ctx, farFrame{moved: true})
			return
		}
		err := notHere(s.id)
		if rem != nil {
			var progress bool
			progress, err = s.read(ctx, rem, p, index)
			if err == nil {
				return
			}
			if progress {
				wait = pauses{}
			}
		}
		if f, ok := errors.AsType[*farError](err); ok {
			s.push(ctx, farFrame{err: f.err, part: f.part})
			return
		}
		if !errs.Is(err, errs.NotOwner) {
			s.push(ctx, farFrame{err: err, part: -1})
			return
		}
		if err := wait.wait(ctx, s.id); err != nil {
			s.push(ctx, farFrame{err: err, part: -1})
			return
		}
	}
}

// farError is an error that the owner met in a part.
type farError struct {
	err  error
	part int
}

func (e *farError) Error() string { return e.err.Error() }
func (e *farError) Unwrap() error { return e.err }

// FarError makes the error of a part, as the owner of its shard tells of it.
func FarError(part int, err error) error { return &farError{err, part} }

// FarPart is which part an error is of; the given one when it does not say.
func FarPart(err error, part int) (int, error) {
	if f, ok := errors.AsType[*farError](err); ok {
		return f.part, f.err
	}
	return part, err
}

// read asks an owner for the parts that are left, and hands over what comes. The plan's
// parts go along; progress says that some did.
func (s *farStream) read(ctx context.Context, rem Remote, p *Plan, index []int) (progress bool, err error) {
	asked := *p
	asked.Parts = nil
	var at []int
	for _, i := range index {
		if part := &p.Parts[i]; p.Follow || part.Lake || part.Overlay || part.State || part.Start < part.End {
			asked.Parts, at = append(asked.Parts, *part), append(at, i)
		}
	}
	if len(at) == 0 || p.Limit == 0 {
		s.push(ctx, farFrame{f: &Frame{End: true, More: len(at) > 0, Stats: s.base}})
		return true, nil
	}
	form, err := s.rd.r.farForm(&asked, s.rd.background, s.begun)
	if err != nil {
		return false, err
	}
	frames, err := rem.Read(ctx, form)
	if err != nil {
		return false, err
	}
	defer frames.Close()
	base := s.base
	for {
		f, err := frames.Next()
		if err == nil {
			err = f.check(len(at))
		}
		if far, ok := errors.AsType[*farError](err); ok && far.part >= 0 && far.part < len(at) {
			if errs.Is(far.err, errs.NotOwner) {
				return progress, far.err
			}
			return progress, &farError{far.err, at[far.part]}
		}
		if err != nil {
			return progress, err
		}
		f.Stats = base.plus(&f.Stats)
		s.base = f.Stats
		s.begun = s.begun || f.Rows > 0
		if !f.End && !f.Idle {
			f.Part = at[f.Part]
			p.Parts[f.Part].enter(&f.Place)
			if p.Limit > 0 {
				p.Limit = max(0, p.Limit-int64(f.Rows))
			}
		}
		progress = true
		if !s.push(ctx, farFrame{f: f}) {
			return true, nil
		}
		if f.End {
			return true, nil
		}
	}
}

// push hands a frame over; false when the stream was ended.
func (s *farStream) push(ctx context.Context, f farFrame) bool {
	select {
	case s.frames <- f:
	case <-ctx.Done():
		return false
	}
	select {
	case s.rd.wake <- struct{}{}:
	default:
	}
	return true
}

// take is the next frame: with wait when it comes, else nil when there is none now.
func (s *farStream) take(ctx context.Context, wait bool) (*farFrame, error) {
	if f := s.peeked; f != nil {
		return f, nil
	}
	var f farFrame
	var ok bool
	if wait {
		select {
		case f, ok = <-s.frames:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	} else {
		select {
		case f, ok = <-s.frames:
		default:
			return nil, nil
		}
	}
	if !ok {
		s.ended = true
		return nil, nil
	}
	s.peeked = &f
	return s.peeked, nil
}

// plus are the counts of two reads.
func (st *Stats) plus(o *Stats) Stats {
	return Stats{
		RowsRead: st.RowsRead + o.RowsRead, RowsSkipped: st.RowsSkipped + o.RowsSkipped,
		BytesRead: st.BytesRead + o.BytesRead, BytesSkipped: st.BytesSkipped + o.BytesSkipped, LakeFiles: st.LakeFiles + o.LakeFiles,
	}
}

// count takes over what the owner counted since.
func (s *farStream) count(now *Stats) {
	st := &s.rd.stats
	st.RowsRead += now.RowsRead - s.stats.RowsRead
	st.RowsSkipped += now.RowsSkipped - s.stats.RowsSkipped
	st.BytesRead += now.BytesRead - s.stats.BytesRead
	st.BytesSkipped += now.BytesSkipped - s.stats.BytesSkipped
	st.LakeFiles += now.LakeFiles - s.stats.LakeFiles
	s.stats = *now
}

// farGrace bounds what is waited for owners to say that they have nothing more, when a
// reader has waited as long as it was told to.
const farGrace = 5 * time.Second

// catchingUp says whether an owner elsewhere may have rows that it has not sent yet.
func (rd *Reader) catchingUp() bool {
	if len(rd.far) == 0 {
		return false
	}
	for _, s := range rd.far {
		if !s.idle {
			return true
		}
	}
	return slices.ContainsFunc(rd.parts, func(pr *partReader) bool { return pr.far != nil && pr.Start < pr.due })
}

// behind looks whether there are records that the parts elsewhere have not come to: those
// that were written before are among them. Their owners are waited for then.
func (rd *Reader) behind(ctx context.Context) error {
	if len(rd.far) == 0 {
		return nil
	}
	ends, err := rd.ends(ctx)
	for pr, end := range ends {
		pr.due = end
	}
	return err
}

// away says whether a part is read elsewhere.
func (rd *Reader) away(pr *partReader) bool {
	if rd.plan.fixed || pr.LakeOnly {
		return false
	}
	if pr.far != nil {
		return true
	}
	if pr.local() {
		return false
	}
	sh, _ := rd.r.o.Owners.Owner(pr.Shard)
	return sh == nil
}

// readFar gives the next chunk of the stream that a part elsewhere is in; it may be of
// another part of that shard. moved says that something came.
func (rd *Reader) readFar(ctx context.Context, pr *partReader) (_ *Chunk, moved bool, err error) {
	if !rd.plan.Follow && pr.done() {
		return nil, false, nil
	}
	s := pr.far
	if s == nil || s.ended && s.peeked == nil {
		rd.openFar(pr.Shard)
		s = pr.far
	}
	got, err := s.take(ctx, !rd.plan.Follow)
	if err != nil || got == nil {
		return nil, s.ended, err
	}
	if s.idle = got.f != nil && got.f.Idle; s.idle {
		s.peeked = nil
		s.count(&got.f.Stats)
		return nil, true, nil
	}
	switch {
	case got.moved:
		s.drop()
		for _, p := range s.parts {
			if rd.plan.Follow && slices.Contains(rd.parts, p) {
				rd.follow(p)
			}
		}
		return nil, true, nil
	case got.err != nil:
		s.drop()
		if got.part >= 0 {
			rd.turn = max(0, slices.Index(rd.parts, s.parts[got.part]))
			if !slices.Contains(rd.parts, s.parts[got.part]) {
				return nil, true, nil // it has left: the others are asked for again
			}
		}
		return nil, false, got.err
	case got.f.End:
		s.count(&got.f.Stats)
		s.drop()
		s.ended = true
		for _, p := range s.parts { // also those that a filter left nothing of
			p.lake, p.Overlay, p.state = false, false, false
			p.Start = max(p.Start, p.End)
		}
		return nil, true, nil
	}
	of := s.parts[got.f.Part]
	if !slices.Contains(rd.parts, of) { // it has left
		s.peeked = nil
		return nil, true, nil
	}
	if rd.plan.Follow && (of.history() || got.f.Place.history()) && rd.before(of) {
		return nil, false, nil // rows before the log come in the order of the parts
	}
	s.peeked = nil
	s.count(&got.f.Stats)
	if got.f.Rows == 0 {
		of.enter(&got.f.Place)
		return nil, true, nil
	}
	return rd.farChunk(of, got.f), true, nil
}

func (p *Place) history() bool { return p.Lake || p.Overlay || p.State }

// before says whether a part before this one has rows to read before its log.
func (rd *Reader) before(pr *partReader) bool {
	for _, p := range rd.parts {
		if p == pr {
			return false
		}
		if p.history() {
			return true
		}
	}
	return false
}

// drop ends a stream: its parts are placed anew by who reads them next.
func (s *farStream) drop() {
	s.end()
	s.peeked = nil
	for _, p := range s.parts {
		if p.far == s {
			p.far = nil
		}
	}
	if s.rd.far[s.id] == s {
		delete(s.rd.far, s.id)
	}
}

// moreFar says whether there may be rows of a part elsewhere that were not given.
func (rd *Reader) moreFar(ctx context.Context, pr *partReader) bool {
	for {
		if pr.done() {
			return false
		}
		s := pr.far
		if pr.cut || s == nil || !pr.history() {
			return true
		}
		got, err := s.take(ctx, true)
		if err != nil || got == nil || got.f == nil || got.f.Rows > 0 {
			return true
		}
		if got.f.End {
			return got.f.More
		}
		s.peeked = nil
		s.parts[got.f.Part].enter(&got.f.Place)
	}
}

// closeFar ends all streams.
func (rd *Reader) closeFar() {
	for _, s := range rd.far {
		s.end()
	}
}
