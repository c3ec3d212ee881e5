package client

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
)

// maxProblemBytes bounds what is read of an answer that is an error.
const maxProblemBytes = 1 << 20

// Members of a problem that become Extra of the error.
const (
	extraRequestID = "request_id"
	extraAccepted  = "accepted"
	extraRejected  = "rejected"
	extraOffsets   = "offsets"
	extraBuckets   = "buckets"
	extraLastSeq   = "last_seq"
	extraReplayed  = "replayed"
)

// decode reads an answer: a 2xx into what the pointer points to (nil: nowhere),
// anything else as an error. It closes the body.
func decode(resp *http.Response, err error, into any) error {
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return readProblem(resp)
	}
	if into == nil || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return errs.New(errs.Unavailable, "the answer of %s broke off or is not JSON: %v", resp.Request.URL.Path, err)
	}
	return nil
}

// readProblem turns an answer that is an error into one of ours.
func readProblem(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProblemBytes))
	if err != nil {
		return errs.New(codeOfStatus(resp.StatusCode), "the server answered %s, and the answer broke off: %v", resp.Status, err)
	}
	if media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err == nil && (media == "application/problem+json" || media == mediaJSON) {
		if e := parseProblem(body); e != nil {
			return e
		}
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	if len(line) > 200 {
		line = line[:200] + "…"
	}
	return errs.New(codeOfStatus(resp.StatusCode), "the server answered %s: %s", resp.Status, line)
}

// parseProblem reads problem+json; nil when it is none.
func parseProblem(body []byte) *errs.Error {
	var p openapi.Problem
	if err := json.Unmarshal(body, &p); err == nil && p.Code != "" {
		return problemError(p, body)
	}
	return nil
}

// problemError is the error that p tells of; body is what p was read from.
func problemError(p openapi.Problem, body []byte) *errs.Error {
	e := &errs.Error{Code: p.Code, Message: p.Detail, Fields: p.Errors}
	if e.Message == "" {
		e.Message = p.Title
	}
	if p.RequestID != "" {
		_ = e.With(extraRequestID, p.RequestID)
	}
	var present map[string]json.RawMessage
	if err := json.Unmarshal(body, &present); err != nil {
		return e // it was an object a moment ago
	}
	for name, value := range map[string]any{
		extraAccepted: p.Accepted, extraRejected: p.Rejected, extraOffsets: p.Offsets,
		extraBuckets: p.Buckets, extraLastSeq: p.LastSeq, extraReplayed: p.Replayed,
	} {
		if _, ok := present[name]; ok {
			_ = e.With(name, value)
		}
	}
	return e
}

// codeOfStatus is the code of an answer that does not say one, such as a proxy's.
func codeOfStatus(status int) errs.Code {
	switch status {
	case http.StatusUnauthorized:
		return errs.Unauthenticated
	case http.StatusForbidden:
		return errs.PermissionDenied
	case http.StatusNotFound:
		return errs.RouteNotFound
	case http.StatusRequestEntityTooLarge:
		return errs.TooLarge
	case http.StatusTooManyRequests:
		return errs.Overloaded
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return errs.Unavailable
	}
	if status >= 400 && status < 500 {
		return errs.InvalidRequest
	}
	return errs.Internal
}

// asError makes an error of one that was put into a stream.
func asError(body []byte, what string) error {
	if e := parseProblem(body); e != nil {
		return e
	}
	return errs.New(errs.Internal, "%s ended in an error that cannot be read: %s", what, fmt.Sprintf("%.200q", body))
}
