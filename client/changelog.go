package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/openapi/httpclient"
)

// Change is a record of the changelog.
type Change struct {
	Type      millrace.ChangeType
	Offset    millrace.Offset // millrace.NoOffset for a row of keyed state or of the lake
	Time      time.Time       // when it was written; zero for a row of keyed state or of the lake
	Partition string          // name; empty on a table without partitions
	Bucket    int             // -1 for a row of the lake in a file of several buckets
	// Row is the whole record as a JSON object, the system columns too.
	Row json.RawMessage
	// Cursor, on the last record of a group, is where to go on from: a reader that
	// has dealt with the group keeps it and starts again at AtCursor(Cursor). Empty
	// on the others.
	Cursor string
}

// ChangelogPage asks once for changes (a long poll): it answers as soon as there
// are some, or with no rows after the wait. Go on with From = AtCursor(page.Next).
func (t *Table) ChangelogPage(ctx context.Context, r ReadRequest, wait time.Duration) (openapi.ChangelogPage, error) {
	var out openapi.ChangelogPage
	params, err := t.changelogParams(r)
	if err != nil {
		return out, err
	}
	if wait > 0 {
		params.Wait = new(strconv.FormatInt(wait.Milliseconds(), 10) + "ms")
	}
	params.Limit = optional(r.Limit)
	params.Timeout = timeoutOf(ctx)
	resp, err := t.c.api.GetChangelog(ctx, t.database, t.view, params, accept(mediaJSON))
	return out, decode(resp, err, &out)
}

// ChangelogNDJSON opens the changes as NDJSON, up to r.Until.
func (t *Table) ChangelogNDJSON(ctx context.Context, r ReadRequest) (*Stream, error) {
	return t.changelogStream(ctx, r, mediaNDJSON)
}

// ChangelogArrow opens the changes as an Arrow IPC stream, up to r.Until.
func (t *Table) ChangelogArrow(ctx context.Context, r ReadRequest) (*Stream, error) {
	return t.changelogStream(ctx, r, mediaArrow)
}

func (t *Table) changelogStream(ctx context.Context, r ReadRequest, mediaType string) (*Stream, error) {
	resp, err := t.openChangelog(ctx, r, mediaType, "")
	return openStream(resp, err, mediaType)
}

func (t *Table) openChangelog(ctx context.Context, r ReadRequest, mediaType, lastEventID string) (*http.Response, error) {
	params, err := t.changelogParams(r)
	if err != nil {
		return nil, err
	}
	params.Limit = optional(r.Limit)
	params.LastEventID = optional(lastEventID)
	return t.c.api.GetChangelog(ctx, t.database, t.view, params, accept(mediaType), httpclient.RequestEditorFn(noBuffering))
}

// noBuffering asks proxies on the way not to hold a live stream back.
func noBuffering(_ context.Context, r *http.Request) error {
	r.Header.Set("Cache-Control", "no-cache")
	return nil
}

func (t *Table) changelogParams(r ReadRequest) (*openapi.GetChangelogParams, error) {
	partitions, err := partitionNames(r.Partitions)
	if err != nil {
		return nil, err
	}
	view := openapi.GetChangelogParamsView(r.View)
	if r.View == openapi.ViewRows {
		view = ""
	}
	return &openapi.GetChangelogParams{
		TableID: optional(r.TableID), View: optional(view), Tier: optional(r.Tier), Columns: r.Columns,
		Filter: optional(r.Filter), Params: r.Params, From: positionParam(r.From), Until: positionParam(r.Until),
		Partitions: partitions, Buckets: r.Buckets,
		HeartbeatMs: optional(r.HeartbeatMs), Compression: optional(r.Compression),
	}, nil
}

// Changes follows the table's changes, from r.From (the latest when empty) to
// r.Until (for ever when empty). It resumes by itself when the connection is
// lost, and ends with an error when that fails too, or when the position is gone.
func (t *Table) Changes(ctx context.Context, r ReadRequest) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		f := follower{t: t, request: r}
		f.run(ctx, yield)
	}
}

// parseChange reads the system columns of a record.
func parseChange(row json.RawMessage) (Change, error) {
	var c struct {
		Type      string    `json:"_change_type"`
		Offset    *int64    `json:"_log_offset"`
		Time      time.Time `json:"_commit_timestamp"`
		Partition string    `json:"_partition"`
		Bucket    *int      `json:"_bucket"`
	}
	if err := json.Unmarshal(row, &c); err != nil {
		return Change{}, errs.New(errs.Internal, "a change record cannot be read: %v", err)
	}
	kind, err := millrace.ParseChangeType(c.Type)
	if err != nil {
		return Change{}, errs.New(errs.Internal, "a change record cannot be read: %v", err)
	}
	out := Change{Type: kind, Offset: millrace.NoOffset, Time: c.Time, Partition: c.Partition, Bucket: -1, Row: row}
	if c.Bucket != nil {
		out.Bucket = *c.Bucket
	}
	if c.Offset != nil {
		out.Offset = millrace.Offset(*c.Offset)
	}
	return out, nil
}
