package router

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Limits of a read request.
const (
	DefaultPageSize   = 1000
	MaxPageSize       = 10_000
	MaxMergedBuckets  = 1024
	MaxLookupKeys     = 1000
	DefaultHeartbeat  = 5_000 // ms
	minHeartbeatMilli = 100
	maxHeartbeatMilli = 60_000
)

// ReadRequest is what a client asks to read: the same fields in a JSON body, in
// query parameters, in a Flight command or ticket, and in command line flags.
type ReadRequest struct {
	Table       string            `json:"table,omitempty"` // "db.t", with a virtual suffix; or empty where the path names it
	TableID     *millrace.TableID `json:"table_id,omitempty"`
	View        string            `json:"view,omitempty"`    // rows, changelog, binlog
	Tier        string            `json:"tier,omitempty"`    // union, hot, lake
	Columns     []string          `json:"columns,omitempty"` // nil: all
	Filter      string            `json:"filter,omitempty"`
	Params      []json.RawMessage `json:"params,omitempty"`
	From        *Position         `json:"from,omitempty"`
	Until       *Position         `json:"until,omitempty"`
	Limit       *int64            `json:"limit,omitempty"`
	Partitions  []json.RawMessage `json:"partitions,omitempty"`
	Buckets     []int             `json:"buckets,omitempty"`
	PageSize    *int              `json:"page_size,omitempty"`
	PageToken   string            `json:"page_token,omitempty"`
	HeartbeatMS *int              `json:"heartbeat_ms,omitempty"`
	Compression string            `json:"compression,omitempty"` // stored, none, lz4, zstd
}

// MaxRequestBytes bounds the JSON of a read request.
const MaxRequestBytes = 1 << 20

// DecodeReadRequest reads the JSON form; extra are further fields that the caller
// takes out of it, such as "op". Unknown fields are errs.UnknownField.
func DecodeReadRequest(b []byte, extra map[string]*string) (*ReadRequest, error) {
	if len(b) > MaxRequestBytes {
		return nil, errs.New(errs.TooLarge, "a read request has at most %d bytes, this one has %d", MaxRequestBytes, len(b))
	}
	if len(extra) > 0 {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(b, &fields); err != nil {
			return nil, errs.New(errs.InvalidRequest, "the request is not a JSON object: %v", err)
		}
		for name, into := range extra {
			if raw, ok := fields[name]; ok {
				if err := json.Unmarshal(raw, into); err != nil {
					return nil, errs.New(errs.InvalidValue, "field %q is a string", name)
				}
				delete(fields, name)
			}
		}
		var err error
		if b, err = json.Marshal(fields); err != nil {
			return nil, errs.New(errs.InvalidRequest, "the request does not read: %v", err)
		}
	}
	req := &ReadRequest{}
	if err := DecodeStrict(b, req); err != nil {
		return nil, err
	}
	return req, nil
}

// DecodeStrict decodes one JSON value; an unknown field is errs.UnknownField,
// anything else that does not read errs.InvalidRequest.
func DecodeStrict(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			return errs.New(errs.InvalidRequest, "after the JSON value comes something else, at byte %d", d.InputOffset())
		}
		return nil
	}
	if e, ok := errors.AsType[*errs.Error](err); ok {
		return e
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return errs.New(errs.UnknownField, "there is no field %s here", name)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return errs.New(errs.InvalidValue, "field %q cannot be a JSON %s", e.Field, clip(e.Value))
	}
	return errs.New(errs.InvalidRequest, "the JSON does not read: %v", err)
}

// ReadRequestFromQuery reads the form of query parameters. Lists are separated by
// commas, params is JSON. Names in also are left to the caller.
func ReadRequestFromQuery(q url.Values, also ...string) (*ReadRequest, error) {
	r := &ReadRequest{}
	for name, vs := range q {
		if len(vs) > 1 {
			return nil, errs.New(errs.DuplicateField, "query parameter %q stands %d times", name, len(vs))
		}
		if err := r.setQuery(name, vs[0], also); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *ReadRequest) setQuery(name, v string, also []string) error {
	number := func() (int64, error) {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return 0, errs.New(errs.InvalidValue, "query parameter %q is %q, not a whole number", name, v)
		}
		return n, nil
	}
	switch name {
	case "table":
		r.Table = v
	case "table_id":
		n, err := strconv.ParseUint(v, 10, 32)
		if err != nil {
			return errs.New(errs.InvalidValue, "query parameter table_id is %q, not a table id", v)
		}
		id := millrace.TableID(n)
		r.TableID = &id
	case "view":
		r.View = v
	case "tier":
		r.Tier = v
	case "columns":
		r.Columns = splitList(v)
	case "filter":
		r.Filter = v
	case "params":
		if err := json.Unmarshal([]byte(v), &r.Params); err != nil {
			return errs.New(errs.InvalidRequest, "query parameter params is not a JSON array: %v", err)
		}
	case "from", "until":
		p, err := ParsePosition(v)
		if err != nil {
			return err
		}
		if name == "from" {
			r.From = p
		} else {
			r.Until = p
		}
	case "limit":
		n, err := number()
		if err != nil {
			return err
		}
		r.Limit = &n
	case "partitions":
		for _, p := range splitList(v) {
			b, err := json.Marshal(p)
			if err != nil {
				return fmt.Errorf("router: %w", err)
			}
			r.Partitions = append(r.Partitions, b)
		}
	case "buckets":
		for _, p := range splitList(v) {
			n, err := strconv.Atoi(p)
			if err != nil {
				return errs.New(errs.InvalidValue, "query parameter buckets names %q, not a bucket number", p)
			}
			r.Buckets = append(r.Buckets, n)
		}
	case "page_size", "heartbeat_ms":
		n, err := number()
		if err != nil {
			return err
		}
		i := int(min(max(n, -1), 1<<30))
		if name == "page_size" {
			r.PageSize = &i
		} else {
			r.HeartbeatMS = &i
		}
	case "page_token":
		r.PageToken = v
	case "compression":
		r.Compression = v
	default:
		if slices.Contains(also, name) {
			return nil
		}
		return errs.New(errs.UnknownField, "there is no query parameter %q here", name)
	}
	return nil
}

func splitList(v string) []string {
	parts := strings.Split(v, ",")
	out := parts[:0]
	for _, p := range parts {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, p)
		}
	}
	return out
}

// SplitVirtual takes the virtual suffix off a table's name: "t$changelog" is
// ("t", "changelog").
func SplitVirtual(name string) (base, suffix string) {
	base, suffix, _ = strings.Cut(name, "$")
	return base, suffix
}
