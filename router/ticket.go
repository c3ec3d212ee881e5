package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/trace"
)

// How long what a client carries is good for.
const (
	TicketTTL = time.Hour
	PageIdle  = 5 * time.Minute
	// A page token of a log read stands on nothing that is held; it ends with the key that signed it, at the latest.
	pageTTL = 24 * time.Hour
)

// planForm is a plan as tickets and page tokens carry it. Columns go by id.
type planForm struct {
	Version   int                         `json:"v"`
	Page      bool                        `json:"g,omitempty"`
	Table     millrace.TableID            `json:"t"`
	Schema    millrace.SchemaID           `json:"s"`
	View      View                        `json:"w,omitempty"`
	Tier      Tier                        `json:"e,omitempty"`
	Columns   []millrace.ColumnID         `json:"c"`
	Filter    string                      `json:"f,omitempty"`
	Params    []json.RawMessage           `json:"p,omitempty"`
	NowMicros int64                       `json:"n"`
	Limit     int64                       `json:"l"`
	Follow    bool                        `json:"o,omitempty"`
	Codec     *segment.Codec              `json:"z,omitempty"`
	Heartbeat time.Duration               `json:"h"`
	PageSize  int                         `json:"r"`
	Expires   int64                       `json:"x"` // Unix seconds
	Snapshots map[millrace.ShardID]string `json:"k,omitempty"`
	Prefix    []byte                      `json:"i,omitempty"` // of the keys of state
	Parts     []byte                      `json:"b,omitempty"` // see appendParts
	// Of a plan that follows a partitioned table: which partitions may join.
	Partitions []string `json:"q,omitempty"`
	Buckets    []uint16 `json:"u,omitempty"`
	Skipped    [2]int   `json:"y,omitzero"`  // partitions in all, and left out
	Lake       int64    `json:"a,omitempty"` // the snapshot of the lake that parts read
}

// Versions of the form: who reads one reads those before. A plan without rows of the
// lake is of the one before, which those take who know no lake.
const (
	planFormVersion     = 2
	lakePlanFormVersion = 3
)

// Hold makes the shards keep the plan's snapshots, so that tickets or tokens of
// the plan can be read later, idle at most for the given time, and to the ttl
// (0: no such end).
func (r *Router) Hold(ctx context.Context, p *Plan, idle, ttl time.Duration) error {
	ids := map[millrace.ShardID]string{}
	for i := range p.Parts {
		part := &p.Parts[i]
		if _, own := p.snaps[part.Shard]; !part.State && !part.Overlay || part.Snapshot != "" && !own {
			continue
		}
		if ids[part.Shard] == "" {
			pin, ok := p.snaps[part.Shard]
			if !ok {
				continue
			}
			id, err := r.hold(ctx, p, part.Shard, pin, idle, ttl)
			if err != nil {
				return err
			}
			ids[part.Shard] = id
			delete(p.snaps, part.Shard)
		}
		part.Snapshot = ids[part.Shard]
	}
	return nil
}

// hold makes a shard keep what a plan stands on there, and says under which id.
func (r *Router) hold(ctx context.Context, p *Plan, id millrace.ShardID, pin pinned, idle, ttl time.Duration) (string, error) {
	if pin.sn == nil {
		if idle == PageIdle && ttl == 0 { // which it does already
			return pin.id, nil
		}
		return pin.id, r.rehold(ctx, id, pin.id, idle, ttl)
	}
	sh, err := r.here(id)
	if err != nil {
		return "", errs.New(errs.SnapshotGone, "the shard that holds the snapshot has moved to another process: start the read again")
	}
	return sh.Hold(pin.sn, p.Table.ID, idle, ttl), nil
}

// rehold says anew how long a snapshot is held.
func (r *Router) rehold(ctx context.Context, id millrace.ShardID, snapshot string, idle, ttl time.Duration) error {
	return r.on(ctx, id,
		func(sh *shard.Shard) error { return sh.Rehold(snapshot, idle, ttl) },
		func(rem Remote) error { return rem.Rehold(ctx, snapshot, idle, ttl) })
}

// Split cuts a plan into at most n plans, each of whole buckets, in order. They
// hold nothing: use them for tickets after Hold.
func (p *Plan) Split(n int) []*Plan {
	if p.Follow || p.Limit >= 0 || len(p.Parts) <= 1 {
		n = 1 // a limit or an endless read counts over all buckets
	}
	per := max(1, (len(p.Parts)+n-1)/n)
	var out []*Plan
	for parts := range slices.Chunk(p.Parts, per) {
		q := *p
		q.Parts, q.snaps = parts, map[millrace.ShardID]pinned{}
		out = append(out, &q)
	}
	if len(out) == 0 {
		q := *p
		q.snaps = map[millrace.ShardID]pinned{}
		out = append(out, &q)
	}
	return out
}

// Ticket seals a plan whose snapshots are held.
func (r *Router) Ticket(p *Plan, expires time.Time) (string, error) {
	return r.seal(p, false, expires)
}

func (r *Router) seal(p *Plan, page bool, expires time.Time) (string, error) {
	b, err := json.Marshal(p.form(page, expires))
	if err != nil {
		return "", fmt.Errorf("router: %w", err)
	}
	return r.o.Signer.Sign(pack(b))
}

// form is the plan as it is carried.
func (p *Plan) form(page bool, expires time.Time) *planForm {
	f := &planForm{
		Version: planFormVersion, Page: page, Table: p.Table.ID, Schema: p.Table.Schema.ID, View: p.View, Columns: columnIDs(p.carried()),
		Filter: p.filterText, Params: p.filterParams, NowMicros: p.now.UnixMicro(), Limit: p.Limit, Follow: p.Follow,
		Heartbeat: p.Heartbeat, PageSize: p.PageSize, Expires: expires.Unix(),
	}
	if p.CodecSet {
		f.Codec = &p.Codec
	}
	f.Skipped = [2]int{p.scope.total, p.scope.skipped}
	if p.history != nil && slices.ContainsFunc(p.Parts, func(part Part) bool { return part.Lake || part.LakeOnly || part.Overlay }) {
		f.Version, f.Lake, f.Tier = lakePlanFormVersion, p.history.snap.ID(), p.Tier
	}
	if p.Follow && p.Table.Partitioned() {
		f.Partitions, f.Buckets = p.scope.partitions, p.scope.buckets
	}
	for _, part := range p.Parts {
		if part.Snapshot != "" {
			if f.Snapshots == nil {
				f.Snapshots = map[millrace.ShardID]string{}
			}
			f.Snapshots[part.Shard] = part.Snapshot
		}
		if part.State {
			f.Prefix = part.Prefix
		}
	}
	f.Parts = appendParts(nil, p.Parts)
	return f
}

// carried are the columns that say what the answer's are: views of the log have more,
// which follow from them.
func (p *Plan) carried() []millrace.Column {
	if p.View == RowsView {
		return p.Columns
	}
	return p.Data
}

// OpenTicket unseals a plan.
func (r *Router) OpenTicket(ctx context.Context, text string) (*Plan, error) {
	return r.unseal(ctx, text, false)
}

// unseal unseals a plan that is to be read, or to go on being held.
func (r *Router) unseal(ctx context.Context, text string, page bool) (*Plan, error) {
	p, err := r.sealed(ctx, text, page)
	if err != nil {
		return nil, err
	}
	if err := r.readsKeys(ctx, p); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// sealed is what a text has sealed, of rows that the caller may read.
func (r *Router) sealed(ctx context.Context, text string, page bool) (*Plan, error) {
	b, err := r.o.Signer.Verify(text)
	if err != nil {
		return nil, err
	}
	if b, err = unpack(b); err != nil {
		return nil, err
	}
	var f planForm
	if err := json.Unmarshal(b, &f); err != nil || f.Version < planFormVersion || f.Version > lakePlanFormVersion || f.Page != page {
		return nil, errs.New(errs.InvalidValue, "the ticket or page token is not one for this use")
	}
	if now := r.o.Clock.Now(); now.Unix() > f.Expires {
		return nil, errs.New(errs.TicketExpired, "the ticket or page token expired at %s; ask for a new one", time.Unix(f.Expires, 0).UTC().Format(time.RFC3339))
	}
	t, err := r.o.Catalog.TableByID(ctx, f.Table)
	if err == nil {
		err = r.mayOpen(ctx, t)
	}
	if err != nil {
		return nil, err
	}
	p, err := r.planOf(ctx, &f, false)
	if err != nil {
		return nil, err
	}
	// Whoever made it, the caller is whom it is opened for, who gets what he could plan himself.
	if p.pass, err = r.readsPlan(ctx, p); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// planOf is the plan that a form stands for; see Plan.fixed.
func (r *Router) planOf(ctx context.Context, f *planForm, fixed bool) (*Plan, error) {
	t, err := r.o.Catalog.TableByID(ctx, f.Table)
	if err != nil {
		return nil, err
	}
	newest := t.Schema
	if t, err = r.tableAs(ctx, t, f.Schema); err != nil {
		return nil, err
	}
	p := &Plan{
		asked: trace.Carry(ctx),
		Table: t, View: f.View, Tier: f.Tier, Limit: f.Limit, Follow: f.Follow, Heartbeat: f.Heartbeat, PageSize: f.PageSize,
		now: time.UnixMicro(f.NowMicros).UTC(), snaps: map[millrace.ShardID]pinned{}, r: r, fixed: fixed,
	}
	if f.Codec != nil {
		p.Codec, p.CodecSet = *f.Codec, true
	}
	named := namedColumns(t, ChangelogView)
	for _, id := range f.Columns {
		i := slices.IndexFunc(named, func(c millrace.Column) bool { return c.ID == id })
		if i < 0 {
			return nil, errs.New(errs.SchemaChanged, "a column of the ticket is no longer in table %s", t.Path)
		}
		p.Columns = append(p.Columns, named[i])
	}
	p.Data, _ = splitColumns(p.Columns)
	p.Columns = viewColumns(p.View, p.Columns, p.Data)
	p.Schema = outputSchema(t, p.Columns)
	if err := p.compileFilter(f.Filter, f.Params); err != nil {
		return nil, err
	}
	guard := newColumnGuard(t, p.stateColumns())
	if err := guard.check(newest); err != nil {
		return nil, err
	}
	p.scope = scope{partitions: f.Partitions, buckets: f.Buckets, total: f.Skipped[0], skipped: f.Skipped[1]}
	if err := r.openParts(ctx, p, f.Parts); err != nil {
		return nil, err
	}
	if f.Lake != 0 {
		snap, err := r.snapshotOf(ctx, t, f.Lake)
		if err == nil {
			err = r.readsHistory(ctx, p, snap)
		}
		if err != nil {
			return nil, err
		}
	}
	if p.history == nil && readsFiles(p.Parts) {
		return nil, errs.New(errs.InvalidValue, "the ticket or page token is not one for this use")
	}
	for i := range p.Parts {
		if part := &p.Parts[i]; part.State || part.Overlay {
			part.Prefix, part.Snapshot = f.Prefix, f.Snapshots[part.Shard]
		}
	}
	return p, nil
}

// RenewTicket makes the snapshots of a ticket live to ttl from now and gives a
// ticket that says so; errs.OffsetOutOfRange when what it reads has expired: then it
// is good until its end, and no longer.
func (r *Router) RenewTicket(ctx context.Context, text string) (string, time.Time, error) {
	p, err := r.OpenTicket(ctx, text)
	if err != nil {
		return "", time.Time{}, err
	}
	if err := p.keepable(ctx, r); err != nil {
		return "", time.Time{}, err
	}
	for sh, id := range p.heldIDs() {
		if err := r.rehold(ctx, sh, id, TicketTTL, TicketTTL); err != nil {
			return "", time.Time{}, err
		}
	}
	expires := r.o.Clock.Now().Add(TicketTTL)
	renewed, err := r.Ticket(p, expires)
	return renewed, expires, err
}

// CancelTicket lets go of the snapshots of a ticket. It gives nothing to go on with, so the
// keys need not be read for it.
func (r *Router) CancelTicket(ctx context.Context, text string) error {
	p, err := r.sealed(ctx, text, false)
	if err != nil {
		return err
	}
	for sh, id := range p.heldIDs() {
		err = errors.Join(err, r.on(ctx, sh, func(sh *shard.Shard) error {
			sh.LetGo(id)
			return nil
		}, func(rem Remote) error { return rem.LetGo(ctx, id) }))
	}
	return err
}

func (p *Plan) heldIDs() map[millrace.ShardID]string {
	out := map[millrace.ShardID]string{}
	for _, part := range p.Parts {
		if part.Snapshot != "" {
			out[part.Shard] = part.Snapshot
		}
	}
	return out
}

// Page plans a page of a request: the first one, or the one its token names. The
// plan's Limit is the page's; ask the reader for the token of the next one.
func (r *Router) Page(ctx context.Context, path string, req *ReadRequest, o PlanOptions) (*Plan, error) {
	if req.PageToken == "" {
		p, err := r.Plan(ctx, path, req, o)
		if err != nil {
			return nil, err
		}
		p.limitAll = p.Limit
		p.Limit = pageLimit(p.limitAll, p.PageSize)
		return p, nil
	}
	p, err := r.unseal(ctx, req.PageToken, true)
	if err != nil {
		return nil, err
	}
	if req.PageSize != nil {
		if *req.PageSize < 1 || *req.PageSize > MaxPageSize {
			return nil, errs.New(errs.InvalidValue, "page_size is between 1 and %d", MaxPageSize)
		}
		p.PageSize = *req.PageSize
	}
	base, _ := SplitVirtual(path)
	if t, err := r.Table(ctx, base, nil); err != nil || t.ID != p.Table.ID {
		if err == nil {
			err = errs.New(errs.TableRecreated, "the page token is of another table than %s is now", base)
		}
		return nil, err
	}
	p.limitAll, p.later = p.Limit, true
	p.Limit = pageLimit(p.limitAll, p.PageSize)
	return p, nil
}

func pageLimit(all int64, page int) int64 {
	if all >= 0 {
		return min(all, int64(page))
	}
	return int64(page)
}

// NextPage is the token of the page after what the reader of a page gave; "" when
// there is nothing more.
func (rd *Reader) NextPage(ctx context.Context) (string, error) {
	given := rd.plan.Limit - rd.left
	left := rd.plan.limitAll
	if left >= 0 {
		left -= given
	}
	if left == 0 || !rd.more(ctx) {
		for sh, id := range rd.plan.heldIDs() {
			rd.r.unhold(sh, id) // the last page was given
		}
		return "", nil
	}
	next := *rd.plan
	next.Limit = left
	next.Parts = rd.resumeParts()
	next.snaps = maps.Clone(rd.plan.snaps)
	if err := rd.r.readsKeys(ctx, &next); err != nil {
		return "", err
	}
	if err := rd.r.Hold(ctx, &next, PageIdle, 0); err != nil {
		return "", err
	}
	for sh := range rd.plan.snaps {
		if _, kept := next.snaps[sh]; !kept {
			delete(rd.plan.snaps, sh) // the shard holds it now
		}
	}
	return rd.r.seal(&next, true, rd.r.o.Clock.Now().Add(pageTTL))
}

// resumeParts are the parts of a plan that gives what this reader did not.
func (rd *Reader) resumeParts() []Part {
	var out []Part
	for _, pr := range rd.parts {
		part := pr.Part
		part.Lake, part.State = pr.lake, pr.state
		if !part.State {
			part.After = nil // the key of a row that nobody needs any more
		}
		if !part.Lake && !part.Overlay && !part.State && part.End != millrace.NoOffset && part.Start >= part.End {
			continue
		}
		out = append(out, part)
	}
	return out
}

// more says whether there may be something that was not given. It looks at the
// state being read, so nothing may be read after it.
func (rd *Reader) more(ctx context.Context) bool {
	for _, pr := range rd.parts {
		if rd.away(pr) {
			if rd.moreFar(ctx, pr) {
				return true
			}
			continue
		}
		if pr.lake && rd.moreInLake(pr) || pr.Overlay && pr.moreInTail() {
			return true
		}
		switch {
		case pr.state && pr.rows != nil:
			if pr.cut || pr.rows.Next() {
				return true
			}
			pr.state = false
		case pr.state:
			return true
		case pr.Start < pr.End:
			return true
		}
	}
	return false
}
