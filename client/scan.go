package client

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"net/http"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
)

// ReadRequest says what to read; its fields are those of contract and Flight.
type ReadRequest = openapi.ReadRequest

// ReadStats says what a read cost.
type ReadStats = openapi.ReadStats

// statsHeader is the header or trailer that has the statistics.
const statsHeader = "X-Millrace-Stats"

func parseStats(h http.Header) (s ReadStats, ok bool) {
	v := h.Get(statsHeader)
	if v == "" || json.Unmarshal([]byte(v), &s) != nil {
		return ReadStats{}, false
	}
	return s, true
}

// Page is one page of a scan.
type Page struct {
	openapi.ScanPage
	Stats ReadStats
}

// ScanPage reads one page; the next one is had with its NextPageToken.
func (t *Table) ScanPage(ctx context.Context, r ReadRequest) (Page, error) {
	var out Page
	resp, err := t.c.api.Scan(asRead(ctx), t.database, t.view, &openapi.ScanParams{Timeout: timeoutOf(ctx)}, r, accept(mediaJSON))
	if err := decode(resp, err, &out.ScanPage); err != nil {
		return out, err
	}
	out.Stats, _ = parseStats(resp.Header)
	return out, nil
}

// Scan ranges over the rows of all pages, as JSON objects. All pages see one
// snapshot; when it is gone the scan ends with errs.SnapshotGone. For much data
// take ScanRows or ScanArrow.
func (t *Table) Scan(ctx context.Context, r ReadRequest) iter.Seq2[json.RawMessage, error] {
	return pages(func(token *string) ([]json.RawMessage, string, error) {
		if token != nil {
			r.PageToken = *token
		}
		p, err := t.ScanPage(ctx, r)
		return p.Rows, p.NextPageToken, err
	})
}

// ScanRows streams the rows as JSON objects, in bounded memory.
func (t *Table) ScanRows(ctx context.Context, r ReadRequest) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		s, err := t.ScanNDJSON(ctx, r)
		if err != nil {
			yield(nil, err)
			return
		}
		defer s.Close()
		for line, err := range s.Lines() {
			if !yield(bytes.Clone(line), err) {
				return
			}
		}
	}
}

// ScanNDJSON opens the rows as NDJSON.
func (t *Table) ScanNDJSON(ctx context.Context, r ReadRequest) (*Stream, error) {
	return t.scanStream(ctx, r, mediaNDJSON)
}

// ScanArrow opens the rows as an Arrow IPC stream.
func (t *Table) ScanArrow(ctx context.Context, r ReadRequest) (*Stream, error) {
	return t.scanStream(ctx, r, mediaArrow)
}

func (t *Table) scanStream(ctx context.Context, r ReadRequest, mediaType string) (*Stream, error) {
	resp, err := t.c.api.Scan(asRead(ctx), t.database, t.view, nil, r, accept(mediaType))
	return openStream(resp, err, mediaType)
}

// Count counts rows; without a filter it is answered from metadata.
func (t *Table) Count(ctx context.Context, r ReadRequest) (int64, error) {
	partitions, err := partitionNames(r.Partitions)
	if err != nil {
		return 0, err
	}
	var out openapi.Count
	resp, err := t.c.api.CountRows(ctx, t.database, t.view, &openapi.CountRowsParams{
		TableID: optional(r.TableID), View: optional(r.View), Tier: optional(r.Tier), Filter: optional(r.Filter),
		Params: r.Params, From: positionParam(r.From), Until: positionParam(r.Until),
		Partitions: partitions, Buckets: r.Buckets, Timeout: timeoutOf(ctx),
	})
	return out.Count, decode(resp, err, &out)
}

// partitionNames takes partitions for an address, which has room for names only.
func partitionNames(partitions []json.RawMessage) ([]string, error) {
	if partitions == nil {
		return nil, nil
	}
	out := make([]string, len(partitions))
	for i, p := range partitions {
		if err := json.Unmarshal(p, &out[i]); err != nil {
			return nil, errs.New(errs.InvalidValue, "partition %s: this operation takes partition names only, such as \"dt=2026-08-26\"", p)
		}
	}
	return out, nil
}
