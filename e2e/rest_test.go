package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Media types of bodies and answers.
const (
	mediaJSON    = "application/json"
	mediaNDJSON  = "application/x-ndjson"
	mediaArrow   = "application/vnd.apache.arrow.stream"
	mediaSSE     = "text/event-stream"
	mediaProblem = "application/problem+json"
)

// obj is a JSON object.
type obj = map[string]any

// answer is a whole HTTP answer.
type answer struct {
	status   int
	header   http.Header
	body     []byte
	trailers http.Header
}

// trailer is what was sent after the body under this name.
func (a answer) trailer(name string) string { return a.trailers.Get(name) }

// request makes a request; body is nil, a string, bytes, a reader, or anything that encodes as
// JSON. headers are name, value pairs; Content-Type is JSON unless they say otherwise.
func (s *server) request(method, path string, body any, headers ...string) (*http.Request, error) {
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	case []byte:
		r = bytes.NewReader(b)
	case io.Reader:
		r = b
	default:
		enc, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(enc)
	}
	req, err := http.NewRequest(method, s.base+path, r)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", mediaJSON)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req, nil
}

// send makes a request and reads the whole answer.
func (s *server) send(method, path string, body any, headers ...string) (answer, error) {
	req, err := s.request(method, path, body, headers...)
	if err != nil {
		return answer{}, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, b, resp.Trailer}, err
}

func (s *server) do(t testing.TB, method, path string, body any, headers ...string) answer {
	t.Helper()
	a, err := s.send(method, path, body, headers...)
	require.NoError(t, err, "%s %s", method, path)
	return a
}

// ok is do for what must succeed with JSON; an empty answer is an empty object.
func (s *server) ok(t testing.TB, method, path string, body any, headers ...string) obj {
	t.Helper()
	a := s.do(t, method, path, body, headers...)
	require.Truef(t, a.status >= 200 && a.status < 300, "%s %s: %d %s", method, path, a.status, a.body)
	if len(a.body) == 0 {
		return obj{}
	}
	return a.object(t)
}

// object reads the answer as one JSON object, numbers as json.Number.
func (a answer) object(t testing.TB) obj {
	t.Helper()
	var o obj
	dec := json.NewDecoder(bytes.NewReader(a.body))
	dec.UseNumber()
	require.NoError(t, dec.Decode(&o), "%s", a.body)
	return o
}

// problem is an RFC 9457 answer.
type problem struct {
	Type, Title, Detail, Instance, Code string
	Status                              int
	RequestID                           string `json:"request_id"`
	Errors                              []struct {
		Index   *int64
		Field   string
		Code    string
		Message string
	}
	Accepted *int64
	Rejected *int64
	Replayed int64
	Offsets  map[string]any
	Buckets  map[string]any
}

// fails sends what must be refused with this status and code, and checks the form of the refusal.
func (s *server) fails(t testing.TB, status int, code, method, path string, body any, headers ...string) problem {
	t.Helper()
	return s.do(t, method, path, body, headers...).problem(t, status, code)
}

func (a answer) problem(t testing.TB, status int, code string) problem {
	t.Helper()
	require.Equalf(t, status, a.status, "%s", a.body)
	require.True(t, strings.HasPrefix(a.header.Get("Content-Type"), mediaProblem), "Content-Type %q", a.header.Get("Content-Type"))
	var p problem
	require.NoError(t, json.Unmarshal(a.body, &p), "%s", a.body)
	require.Equalf(t, code, p.Code, "%s", a.body)
	require.Equal(t, status, p.Status)
	require.Contains(t, p.Type, "/docs/errors#"+code)
	require.NotEmpty(t, p.Title)
	require.NotEmpty(t, p.Detail)
	require.NotEmpty(t, p.RequestID)
	return p
}
