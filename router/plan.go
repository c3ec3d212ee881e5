package router

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/trace"
)

// View says as what a table is read.
type View uint8

// The views.
const (
	RowsView      View = 0
	ChangelogView View = 1 // a row a record of the log
	BinlogView    View = 2 // a row a change, with the rows before and after it
)

// ofLog says whether the view is one of the table's log, not of its rows.
func (v View) ofLog() bool { return v != RowsView }

// Plan is a read request resolved: which buckets, from where to where, which
// columns. It holds snapshots; its owner closes it.
type Plan struct {
	asked trace.Carried // by which request

	Table     *millrace.Table
	View      View
	Tier      Tier
	Columns   []millrace.Column // of the answer; system columns have negative ids
	Data      []millrace.Column // of the table, that the answer is made of
	Schema    *arrow.Schema     // of the answer
	Limit     int64             // rows in all; -1: no limit
	Follow    bool              // go on at the end
	Parts     []Part
	Codec     segment.Codec // asked for; meaningful when CodecSet
	CodecSet  bool
	Heartbeat time.Duration
	PageSize  int

	scope        scope
	limitAll     int64 // of all pages, when Limit is a page's
	later        bool  // a page after the first
	merged       bool  // one stream gives all parts
	keyOrder     bool  // see PlanOptions
	filterText   string
	filterParams []json.RawMessage
	now          time.Time // what CURRENT_TIMESTAMP is
	filter       *filter.Filter
	pass         Pass // what its caller may read; nil: everything
	r            *Router
	fixed        bool // of one shard that is here: it goes nowhere else, and nothing joins or leaves
	snaps        map[millrace.ShardID]pinned
	history      *history // what the lake has of it; nil: nothing is read there
}

// Part is what a plan reads of one bucket: rows of the lake first when Lake is set,
// or keyed state when State is, then the log [Start, End); End is NoOffset when the
// plan follows the log. One of the bucket NoBucket is files of the lake alone.
type Part struct {
	Bucket    millrace.BucketID
	Partition string // its name; "" on a table without partitions
	Key       string // the bucket key; "" of NoBucket
	Shard     millrace.ShardID

	Lake bool
	// LakeOnly says that there is no log to go on with: the plan is of the lake alone,
	// or the partition is.
	LakeOnly bool
	File     int   // the file of the lake that is read next, among those of its bucket
	Row      int64 // the position in it
	Files    int   // where to stop; -1: after the last file
	// Overlay says that of the rows of the lake those are left out that have changed in
	// the log up to End, and that what stands there instead comes after them, from Tail.
	Overlay bool
	Tail    millrace.Offset

	State    bool
	Snapshot string // the id under which the shard holds it; empty for the plan's own
	Prefix   []byte // of the primary keys to read
	After    []byte // the primary key read last

	Start, End millrace.Offset
	look       Look // what was found when it was looked at last
	looked     bool
	named      bool // Start was given by the client
	joins      bool // Start is where the log goes on after the lake
}

// PlanOptions are a door's defaults and demands.
type PlanOptions struct {
	// View is what the path asks for; a request may say the same, not another.
	View    View
	ViewSet bool
	// From and Until are the defaults of a log read.
	From, Until Position
	// Bounded refuses until = never.
	Bounded bool
	// Merged limits the plan to MaxMergedBuckets.
	Merged bool
	// KeyOrder asks for the rows of a keyed table as their state has them: those of one
	// bucket in the order of their keys.
	KeyOrder bool

	// counts reads no column but those that the filter names, and places none at all: it
	// asks where the log's records are.
	counts, places bool
}

// Scan are the options of a bounded read: everything up to now.
var Scan = PlanOptions{From: Position{Kind: Earliest}, Until: Position{Kind: Latest}}

// Plan resolves a request on a table named by path and request.
func (r *Router) Plan(ctx context.Context, path string, req *ReadRequest, o PlanOptions) (_ *Plan, err error) {
	t, view, tier, err := r.resolve(ctx, path, req, o)
	if err != nil {
		return nil, err
	}
	p := &Plan{Table: t, View: view, Tier: tier, Limit: -1, now: r.o.Clock.Now(), snaps: map[millrace.ShardID]pinned{}, r: r, asked: trace.Carry(ctx)}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	if err := p.settings(req); err != nil {
		return nil, err
	}
	if !o.counts {
		if p.Columns, p.Data, err = outputColumns(t, view, req.Columns); err != nil {
			return nil, err
		}
	}
	p.Schema = outputSchema(t, p.Columns)
	if err := p.compileFilter(req.Filter, req.Params); err != nil {
		return nil, err
	}
	if !o.places { // which tells no more than who may describe the table can see
		if p.pass, err = r.readsPlan(ctx, p); err != nil {
			return nil, err
		}
	}
	if err := r.chooseScope(ctx, p, req); err != nil {
		return nil, err
	}
	if err := r.place(ctx, p, req, o); err != nil {
		return nil, err
	}
	return p, r.readsKeys(ctx, p)
}

// Close lets go of the plan's snapshots.
func (p *Plan) Close() {
	for id, pin := range p.snaps {
		if pin.sn != nil {
			pin.sn.Release()
		} else {
			p.r.unhold(id, pin.id)
		}
		delete(p.snaps, id)
	}
}

// resolve finds the table, the view and the tier.
func (r *Router) resolve(ctx context.Context, path string, req *ReadRequest, o PlanOptions) (*millrace.Table, View, Tier, error) {
	if path == "" {
		path = req.Table
	} else if req.Table != "" && req.Table != path {
		return nil, 0, 0, errs.New(errs.InvalidValue, "the request names table %q and the path %q", clip(req.Table), clip(path))
	}
	if path == "" {
		return nil, 0, 0, errs.New(errs.InvalidValue, "the request names no table: give \"table\":\"database.table\"")
	}
	base, suffix := SplitVirtual(path)
	view, err := viewOf(suffix, req, o)
	if err != nil {
		return nil, 0, 0, err
	}
	tier, err := tierOf(suffix, req)
	if err != nil {
		return nil, 0, 0, err
	}
	t, err := r.Table(ctx, base, req.TableID)
	if err == nil {
		err = checkTier(t, tier, view)
	}
	return t, view, tier, err
}

// viewOf is the view that suffix, request and door agree on.
func viewOf(suffix string, req *ReadRequest, o PlanOptions) (View, error) {
	view, set := o.View, o.ViewSet
	said := false // by suffix or request: a door that reads the log gives it as either
	say := func(name, by string) error {
		var v View
		switch name {
		case "":
			return nil
		case "rows":
			v = RowsView
		case "changelog":
			v = ChangelogView
		case "binlog":
			v = BinlogView
		default:
			return errs.New(errs.InvalidValue, "%s %q is not one of rows, changelog, binlog", by, clip(name))
		}
		if refines := view == ChangelogView && v == BinlogView && !said; set && v != view && !refines {
			return errs.New(errs.InvalidValue, "%s asks for %q, and the request for another view", by, name)
		}
		view, set, said = v, true, true
		return nil
	}
	if suffix != suffixLake { // which is a tier
		if err := say(suffix, "the suffix"); err != nil {
			return 0, err
		}
	}
	return view, say(req.View, "view")
}

// settings takes over the plain fields.
func (p *Plan) settings(req *ReadRequest) error {
	if req.Limit != nil {
		if *req.Limit < 0 {
			return errs.New(errs.InvalidValue, "limit %d is negative", *req.Limit)
		}
		p.Limit = *req.Limit
	}
	p.PageSize = DefaultPageSize
	if req.PageSize != nil {
		if *req.PageSize < 1 || *req.PageSize > MaxPageSize {
			return errs.New(errs.InvalidValue, "page_size is between 1 and %d", MaxPageSize)
		}
		p.PageSize = *req.PageSize
	}
	p.Heartbeat = DefaultHeartbeat * time.Millisecond
	if req.HeartbeatMS != nil {
		if *req.HeartbeatMS < minHeartbeatMilli || *req.HeartbeatMS > maxHeartbeatMilli {
			return errs.New(errs.InvalidValue, "heartbeat_ms is between %d and %d", minHeartbeatMilli, maxHeartbeatMilli)
		}
		p.Heartbeat = time.Duration(*req.HeartbeatMS) * time.Millisecond
	}
	if req.Compression != "" {
		c, err := ParseCompression(req.Compression)
		if err != nil {
			return err
		}
		p.Codec, p.CodecSet = c, true
	}
	return nil
}

// ParseCompression reads stored, none, lz4 or zstd.
func ParseCompression(s string) (segment.Codec, error) {
	switch s {
	case "stored":
		return segment.Stored, nil
	case "none":
		return segment.None, nil
	case "lz4":
		return segment.LZ4, nil
	case "zstd":
		return segment.ZSTD, nil
	}
	return 0, errs.New(errs.InvalidValue, "compression %q is not one of stored, none, lz4, zstd", clip(s))
}

func (p *Plan) compileFilter(text string, params []json.RawMessage) error {
	if text == "" {
		if len(params) > 0 {
			return errs.New(errs.InvalidFilter, "params are given and no filter")
		}
		return nil
	}
	f, err := filter.Compile(text, params, namedColumns(p.Table, p.View), p.now)
	if err != nil {
		return err
	}
	if p.View.ofLog() && p.Table.Options.Image == millrace.WALImage {
		for _, name := range f.ColumnNames() {
			if i := p.Table.Schema.Index(name); i >= 0 && !slices.Contains(p.Table.PrimaryKey, p.Table.Schema.Columns[i].ID) {
				return errs.New(errs.InvalidFilter, "the changelog of table %s has no images from before an update (table.changelog.image=WAL), so a filter on it may name key columns only, and %q is none", p.Table.Path, name)
			}
		}
	}
	p.filter, p.filterText, p.filterParams = f, text, params
	return nil
}

// Ends are the offsets that a bounded plan stands for, by bucket key: a changelog
// read goes on from exactly there. Nil for a page after the first, which does not
// name all buckets any more.
func (p *Plan) Ends() map[string]millrace.Offset {
	if p.Follow || p.later {
		return nil
	}
	out := make(map[string]millrace.Offset, len(p.Parts))
	for _, part := range p.Parts {
		if part.Bucket.Bucket != NoBucket {
			out[part.Key] = part.End
		}
	}
	return out
}

// InKeyOrder says whether the plan gives rows in the order of their primary keys, as the
// state of one bucket is.
func (p *Plan) InKeyOrder() bool {
	return p.View == RowsView && (len(p.Parts) == 0 || len(p.Parts) == 1 && p.Parts[0].State)
}

// Filtered says whether the plan has a filter.
func (p *Plan) Filtered() bool { return p.filter != nil }

func (p *Plan) String() string {
	return fmt.Sprintf("%s view %d, %d buckets", p.Table.Path, p.View, len(p.Parts))
}
