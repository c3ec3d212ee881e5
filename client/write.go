package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/google/uuid"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/openapi/httpclient"
)

// WriteResult says what became of a write.
type WriteResult = openapi.WriteResult

// WriteOptions are those of one write. The zero value appends to a log table and
// upserts into a keyed one.
type WriteOptions struct {
	Mode openapi.WriteMode
	// Columns makes it a partial update of exactly these columns.
	Columns []string
	// ContinueOnError writes the good rows and lists the bad; otherwise the first
	// bad chunk stops the write.
	ContinueOnError bool
	// TableID, when not 0, is the table that is meant.
	TableID int64
	// IdempotencyKey makes sending the same write again harmless for 24 h. Empty: a new
	// one, for writes whose body can be sent again and that no writer numbers.
	IdempotencyKey string
	// WriterID and WriterSeq (from 1) number the batches of a writer; WriterEpoch,
	// when not 0, fences older instances of it.
	WriterID    string
	WriterSeq   int64
	WriterEpoch int64
	// Encoding says how a body given as a reader is compressed: "", "gzip", "zstd".
	Encoding string
	// Again makes a body given as a reader anew, from its beginning, so that the write
	// can be sent again after a failure; nil: only what lies in memory can.
	Again func() (io.ReadCloser, error)
}

func (o WriteOptions) params(ctx context.Context) *openapi.WriteRecordsParams {
	p := &openapi.WriteRecordsParams{
		Mode: optional(o.Mode), Columns: o.Columns, TableID: optional(o.TableID),
		IdempotencyKey: optional(o.IdempotencyKey), XWriterID: optional(o.WriterID),
		XWriterSeq: optional(o.WriterSeq), XWriterEpoch: optional(o.WriterEpoch),
		ContentEncoding: optional(openapi.WriteRecordsParamsContentEncoding(o.Encoding)),
		Timeout:         timeoutOf(ctx),
	}
	if o.ContinueOnError {
		p.OnError = new(openapi.OnErrorContinue)
	}
	return p
}

// Write writes rows as one batch, all or nothing as far as checking goes. A row
// is anything that encodes to a JSON object by column name.
func (t *Table) Write(ctx context.Context, rows []any, o WriteOptions) (WriteResult, error) {
	encoded := make([]json.RawMessage, len(rows))
	for i, r := range rows {
		b, err := json.Marshal(r)
		if err != nil {
			return WriteResult{}, errs.Row(errs.InvalidValue, int64(i), "", "cannot be encoded: %v", err)
		}
		encoded[i] = b
	}
	body, err := json.Marshal(openapi.WriteRequest{Rows: encoded})
	if err != nil {
		return WriteResult{}, fmt.Errorf("client: %w", err)
	}
	return t.write(ctx, mediaJSON, bytes.NewReader(body), o)
}

// WriteNDJSON streams rows, one JSON object a line. It is applied in chunks; an
// error tells in Extra how many rows were accepted before it.
func (t *Table) WriteNDJSON(ctx context.Context, body io.Reader, o WriteOptions) (WriteResult, error) {
	return t.write(ctx, mediaNDJSON, body, o)
}

// WriteArrow streams an Arrow IPC stream; each message is a chunk.
func (t *Table) WriteArrow(ctx context.Context, body io.Reader, o WriteOptions) (WriteResult, error) {
	return t.write(ctx, mediaArrow, body, o)
}

func (t *Table) write(ctx context.Context, mediaType string, body io.Reader, o WriteOptions) (WriteResult, error) {
	var out WriteResult
	again := func(_ context.Context, r *http.Request) error {
		if o.Again != nil {
			r.GetBody = o.Again
		}
		if r.GetBody != nil && o.IdempotencyKey == "" && o.WriterID == "" {
			return t.c.newKey(ctx, r)
		}
		return nil
	}
	resp, err := t.c.api.WriteRecordsWithBody(ctx, t.database, t.base, o.params(ctx), mediaType, body, again)
	return out, decode(resp, err, &out)
}

// newKey gives a write that may be sent again a key of its own.
func (c *Client) newKey(_ context.Context, r *http.Request) error {
	if c.retries > 0 {
		r.Header.Set(headerKey, uuid.NewString())
	}
	return nil
}

// Put upserts a whole row. Columns that it does not have become NULL; those of
// the key may be left out.
func (t *Table) Put(ctx context.Context, key Key, row any) (WriteResult, error) {
	return t.writeRow(ctx, key, row, func(pk openapi.KeyQuery, body io.Reader) (*http.Response, error) {
		return t.c.api.PutRowWithBody(ctx, t.database, t.base, &openapi.PutRowParams{Pk: pk, Timeout: timeoutOf(ctx)}, mediaJSON, body, t.c.newKey)
	})
}

// Patch changes the columns that changes has: nil makes one NULL, others keep
// their value. An absent row is inserted.
func (t *Table) Patch(ctx context.Context, key Key, changes any) (WriteResult, error) {
	return t.writeRow(ctx, key, changes, func(pk openapi.KeyQuery, body io.Reader) (*http.Response, error) {
		return t.c.api.PatchRowWithBody(ctx, t.database, t.base, &openapi.PatchRowParams{Pk: pk, Timeout: timeoutOf(ctx)}, mediaJSON, body, t.c.newKey)
	})
}

func (t *Table) writeRow(_ context.Context, key Key, row any, send func(openapi.KeyQuery, io.Reader) (*http.Response, error)) (WriteResult, error) {
	var out WriteResult
	pk, err := key.query()
	if err != nil {
		return out, err
	}
	body, err := json.Marshal(row)
	if err != nil {
		return out, errs.New(errs.InvalidValue, "the row cannot be encoded: %v", err)
	}
	resp, err := send(pk, bytes.NewReader(body))
	return out, decode(resp, err, &out)
}

// Delete deletes a row; an absent one is no error. With columns, these become
// NULL, and the row goes when nothing else is left of it.
func (t *Table) Delete(ctx context.Context, key Key, columns ...string) (WriteResult, error) {
	var out WriteResult
	pk, err := key.query()
	if err != nil {
		return out, err
	}
	resp, err := t.c.api.DeleteRow(ctx, t.database, t.base, &openapi.DeleteRowParams{Pk: pk, Columns: columns, Timeout: timeoutOf(ctx)}, t.c.newKey)
	return out, decode(resp, err, &out)
}

// PartialResult is what a failed write says about what it did write: accepted and
// rejected rows, and the offsets that are certain. ok is false when err is none
// that knows.
func PartialResult(err error) (r WriteResult, ok bool) {
	e, isOurs := asErr(err)
	if !isOurs {
		return r, false
	}
	r.Errors = e.Fields
	r.Accepted, ok = e.Extra[extraAccepted].(int64)
	r.Rejected, _ = e.Extra[extraRejected].(int64)
	r.LastSeq, _ = e.Extra[extraLastSeq].(int64)
	r.Replayed, _ = e.Extra[extraReplayed].(int64)
	r.Offsets, _ = e.Extra[extraOffsets].(openapi.OffsetRanges)
	r.Buckets, _ = e.Extra[extraBuckets].(openapi.BucketOutcomes)
	return r, ok
}

// optional is a parameter that is left out when zero.
func optional[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

var _ httpclient.HttpRequestDoer = (*retrier)(nil)
