package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/flightsvc"
	"github.com/millrace/millrace/openapi"
)

// actions runs the unary operations of the API for Flight: through the same
// handler, so that both doors do the same.
type actions struct {
	api http.Handler
	ops map[string]openapi.Operation
}

var _ flightsvc.Actions = (*actions)(nil)

func newActions(api http.Handler) *actions {
	a := &actions{api: api, ops: map[string]openapi.Operation{}}
	for _, op := range openapi.Operations() {
		if op.Unary {
			a.ops[op.ID] = op
		}
	}
	return a
}

// Do implements flightsvc.Actions.
func (a *actions) Do(ctx context.Context, operationID string, body []byte) ([]byte, error) {
	op, ok := a.ops[operationID]
	if !ok {
		return nil, errs.New(errs.RouteNotFound, "there is no operation %q", clip(operationID))
	}
	req, err := actionRequest(ctx, op, body)
	if err != nil {
		return nil, err
	}
	w := &gathered{header: http.Header{}, status: http.StatusOK}
	a.api.ServeHTTP(w, req)
	if w.status >= http.StatusBadRequest {
		return nil, problemError(w.status, w.body.Bytes())
	}
	return w.body.Bytes(), nil
}

// actionRequest spreads the members of an action's body over path, query, headers and
// body of the operation.
func actionRequest(ctx context.Context, op openapi.Operation, body []byte) (*http.Request, error) {
	members := map[string]json.RawMessage{}
	if len(bytes.TrimSpace(body)) > 0 {
		if err := json.Unmarshal(body, &members); err != nil {
			return nil, errs.New(errs.InvalidRequest, "the body of action %s is not a JSON object: %v", op.ID, err)
		}
	}
	path := op.Path
	for _, name := range op.PathParams {
		raw, ok := members[name]
		if !ok {
			return nil, errs.New(errs.InvalidRequest, "action %s needs %q", op.ID, name)
		}
		delete(members, name)
		path = strings.Replace(path, "{"+name+"}", url.PathEscape(parameterText(raw)), 1)
	}
	query := url.Values{}
	// The key of a row address is an object, its row a member of its own.
	var key map[string]json.RawMessage
	if raw, ok := members["pk"]; ok && strings.HasSuffix(op.Path, "/rows") && json.Unmarshal(raw, &key) == nil {
		delete(members, "pk")
		for name, v := range key {
			query.Set("pk."+name, parameterText(v))
		}
	}
	for _, name := range op.QueryParams {
		if raw, ok := members[name]; ok {
			delete(members, name)
			query.Set(name, parameterText(raw))
		}
	}
	header := http.Header{}
	for _, name := range op.HeaderParams {
		if raw, ok := members[headerMember(name)]; ok {
			delete(members, headerMember(name))
			header.Set(name, parameterText(raw))
		}
	}
	var content []byte
	switch {
	case op.HasBody && strings.Contains(op.Path, "/rows"):
		content = members["row"]
	case op.HasBody:
		var err error
		if content, err = json.Marshal(members); err != nil {
			return nil, errs.New(errs.InvalidRequest, "the body of action %s: %v", op.ID, err)
		}
	case len(members) > 0:
		name := slices.Sorted(maps.Keys(members))[0]
		return nil, errs.New(errs.UnknownField, "action %s has no parameter %q", op.ID, clip(name))
	}
	req, err := http.NewRequestWithContext(ctx, op.Method, path, bytes.NewReader(content))
	if err != nil {
		return nil, errs.New(errs.InvalidRequest, "action %s: %v", op.ID, err)
	}
	req.URL.RawQuery = query.Encode()
	req.Header = header
	req.Header.Set("Accept", "application/json")
	if op.HasBody {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// headerMember is the member of an action's body that stands for a header: writer_id
// for X-Writer-Id, as in a DoPut.
func headerMember(name string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "X-")), "-", "_")
}

// parameterText is a member as a parameter spells it: a text bare, a list of texts
// with commas, everything else as JSON.
func parameterText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		return strings.Join(list, ",")
	}
	return string(raw)
}

// problemError is the error that the API rendered as a problem.
func problemError(status int, body []byte) error {
	var p struct {
		Code   errs.Code         `json:"code"`
		Detail string            `json:"detail"`
		Errors []errs.FieldError `json:"errors"`
	}
	if err := json.Unmarshal(body, &p); err != nil || p.Code == "" {
		return fmt.Errorf("server: the API answered %d without a problem", status)
	}
	e := &errs.Error{Code: p.Code, Message: p.Detail, Fields: p.Errors}
	var members map[string]any
	if err := json.Unmarshal(body, &members); err != nil {
		return fmt.Errorf("server: the API's problem: %w", err)
	}
	for _, known := range []string{"type", "title", "status", "detail", "instance", "code", "request_id", "errors"} {
		delete(members, known)
	}
	if len(members) > 0 {
		e.Extra = members
	}
	return e
}

// gathered is an answer held in memory; unary answers are small.
type gathered struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (g *gathered) Header() http.Header { return g.header }

// WriteHeader implements http.ResponseWriter.
func (g *gathered) WriteHeader(status int) { g.status = status }

// Write implements http.ResponseWriter.
func (g *gathered) Write(b []byte) (int, error) { return g.body.Write(b) }
