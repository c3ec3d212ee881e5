package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"iter"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
)

// Key is a whole primary key: a value for each key column. Values are strings,
// integers, booleans, []byte, or anything whose JSON value is a string or number.
type Key map[string]any

// query renders the key as ?pk.<column>=<value>.
func (k Key) query() (openapi.KeyQuery, error) {
	if len(k) == 0 {
		return nil, errs.New(errs.MissingKey, "the key has no columns")
	}
	out := make(openapi.KeyQuery, len(k))
	for column, v := range k {
		switch v := v.(type) {
		case string:
			out["pk."+column] = v
		case []byte:
			out["pk."+column] = base64.RawURLEncoding.EncodeToString(v)
		default:
			b, err := json.Marshal(v)
			if err != nil || len(b) == 0 || b[0] == '{' || b[0] == '[' || string(b) == "null" {
				return nil, errs.New(errs.InvalidValue, "%v cannot be a value of key column %q", v, column)
			}
			var s string
			if json.Unmarshal(b, &s) == nil {
				out["pk."+column] = s
			} else {
				out["pk."+column] = string(b)
			}
		}
	}
	return out, nil
}

// Get reads a row by its key, as a JSON object; no columns are all columns. A key
// that no row has is errs.RowNotFound.
func (t *Table) Get(ctx context.Context, key Key, columns ...string) (json.RawMessage, error) {
	pk, err := key.query()
	if err != nil {
		return nil, err
	}
	var out json.RawMessage
	resp, err := t.c.api.GetRow(ctx, t.database, t.base, &openapi.GetRowParams{Pk: pk, Columns: columns, Timeout: timeoutOf(ctx)})
	return out, decode(resp, err, &out)
}

// Lookup reads rows by their keys (each anything that encodes to a JSON object),
// in order; nil for a key that no row has.
func (t *Table) Lookup(ctx context.Context, keys []any, columns ...string) ([]json.RawMessage, error) {
	return t.lookup(ctx, keys, openapi.LookupRequest{Columns: columns})
}

// LookupOrInsert is Lookup, but a key that no row has gets one first: with NULL in the
// other columns, and the next number in one that the server numbers.
func (t *Table) LookupOrInsert(ctx context.Context, keys []any, columns ...string) ([]json.RawMessage, error) {
	return t.lookup(ctx, keys, openapi.LookupRequest{Columns: columns, InsertIfAbsent: true})
}

// lookup is sent again as a read is: what was inserted is found then.
func (t *Table) lookup(ctx context.Context, keys []any, request openapi.LookupRequest) ([]json.RawMessage, error) {
	request.Keys = make([]json.RawMessage, len(keys))
	for i, k := range keys {
		b, err := json.Marshal(k)
		if err != nil {
			return nil, errs.Row(errs.InvalidValue, int64(i), "", "the key cannot be encoded: %v", err)
		}
		request.Keys[i] = b
	}
	var out openapi.LookupResult
	resp, err := t.c.api.LookupRows(asRead(ctx), t.database, t.base, &openapi.LookupRowsParams{Timeout: timeoutOf(ctx)}, request)
	if err := decode(resp, err, &out); err != nil {
		return nil, err
	}
	if len(out.Rows) != len(keys) {
		return nil, errs.New(errs.Internal, "the server answered %d rows for %d keys", len(out.Rows), len(keys))
	}
	for i, r := range out.Rows {
		if string(r) == "null" {
			out.Rows[i] = nil
		}
	}
	return out.Rows, nil
}

// PrefixRequest asks for the rows whose key begins with a prefix: the first columns of
// the primary key, the bucket key among them.
type PrefixRequest struct {
	Prefix   Key
	Columns  []string // none are all
	PageSize int      // 0: as the server has it
}

// Prefix ranges over the rows whose key begins with a prefix, as JSON objects, in the
// order of their keys. All pages see one snapshot; when it is gone the walk ends with
// errs.SnapshotGone.
func (t *Table) Prefix(ctx context.Context, r PrefixRequest) iter.Seq2[json.RawMessage, error] {
	return pages(func(token *string) ([]json.RawMessage, string, error) {
		prefix, err := json.Marshal(r.Prefix)
		if err != nil {
			return nil, "", errs.New(errs.InvalidValue, "the prefix cannot be encoded: %v", err)
		}
		request := openapi.PrefixLookupRequest{Prefix: prefix, Columns: r.Columns, Limit: r.PageSize}
		if token != nil {
			request.PageToken = *token
		}
		var out openapi.PrefixLookupResult
		resp, err := t.c.api.PrefixLookup(asRead(ctx), t.database, t.base, &openapi.PrefixLookupParams{Timeout: timeoutOf(ctx)}, request)
		return out.Rows, out.NextPageToken, decode(resp, err, &out)
	})
}

func asErr(err error) (*errs.Error, bool) { return errors.AsType[*errs.Error](err) }
