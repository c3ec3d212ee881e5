// Package client is the Go client of Millrace over HTTP: databases and tables,
// writes, rows by key, scans, and the changelog with resumption.
//
//	c, err := client.New(client.Options{Server: "http://127.0.0.1:8080"})
//	t, err := c.Table("retail.cust_dim")
//	_, err = t.Write(ctx, []any{map[string]any{"cust_id": 42, "tier": "gold"}}, client.WriteOptions{})
//	row, err := t.Get(ctx, client.Key{"cust_id": 42})
//	for row, err := range t.Scan(ctx, client.ReadRequest{Filter: "tier = 'gold'"}) { … }
//	for change, err := range t.Changes(ctx, client.ReadRequest{From: client.Earliest}) { … }
//
// It wraps the client generated from the OpenAPI document (openapi/httpclient)
// and adds what a generator cannot know: errors with codes, retries, streams
// that notice when they are cut off, and cursors. Rows are JSON text
// ([encoding/json.RawMessage]), so that 64-bit integers keep every digit; Arrow
// streams are plain readers, so that this package needs no Arrow.
//
// Errors are *errs.Error: a problem that the server sent keeps its code, its
// fields and its further members (Extra: request_id, accepted, rejected, offsets,
// buckets, last_seq, replayed, with the types of openapi.Problem). A server that cannot be
// reached is errs.Unavailable. A write that was sent and not answered is
// errs.UnknownOutcome.
//
// Invariants:
//
//	C1  A request is sent again only when that is safe, and only when its body can be
//	    read again: reads, and writes that the server recognises (by an idempotency
//	    key, which writes get that can be sent again, or their writer's number), after
//	    any transport error, an unknown outcome, or an answer that says try again;
//	    other writes when the server refused them whole (429, 503 and nothing
//	    accepted) or the connection was never made. Never more than Options.Retries
//	    times, never past the context.
//	C2  A stream that ends without its end marker (Arrow), with an error line
//	    (NDJSON) or event (server-sent events) is an error, never a short result.
//	C3  Changes resumes from the cursor of the last whole group: no record is
//	    skipped or given twice, and a -U never comes without its +U. Amid the
//	    current rows of a "full" read there is no cursor: a break there is
//	    errs.SnapshotGone.
//
// It leaves to others: Arrow, Parquet and CSV (cmd/millrace), Flight.
//
// A Client and its Tables are safe for concurrent use; iterators and Streams
// belong to one goroutine.
package client
