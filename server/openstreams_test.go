package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
)

// openStream is a stream of pat's that waits; ended reads it to its end, and gives the code
// that it ends with.
type openStream struct {
	name  string
	ended func() string
}

// idleStreams opens a stream of each kind on d.t and d.u. Each is under way when it returns,
// and from then on neither side has anything to say.
func (g *guarded) idleStreams() []openStream {
	bearer := g.bearer("pat")
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(g.t.Context(), "authorization", bearer), time.Minute)
	g.t.Cleanup(cancel)
	var out []openStream
	get := func(accept string) {
		resp := g.begin(ctx, http.MethodGet, "/v1/databases/d/tables/u/changelog?from=earliest", bearer, accept, nil) //nolint:bodyclose // by ended
		require.Equal(g.t, 200, resp.StatusCode)
		out = append(out, openStream{"changelog as " + accept, func() string { return textOf(g.t, resp) }})
	}
	get("text/event-stream")
	get("application/x-ndjson")
	tail, err := g.fl.DoGet(ctx, &flight.Ticket{Ticket: []byte(`{"op":"scan","table":"d.u$changelog","from":"earliest","until":"never"}`)})
	require.NoError(g.t, err)
	_, err = tail.Recv()
	require.NoError(g.t, err)
	out = append(out, openStream{"DoGet", func() string {
		code, _ := drained(tail.Recv, func(*flight.FlightData) string { return "" })
		return string(code)
	}})
	put, err := g.fl.DoPut(ctx)
	require.NoError(g.t, err)
	sendOne(g.t, put, &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"d", "u"}})
	out = append(out, openStream{"DoPut", func() string {
		code, _ := drained(put.Recv, func(*flight.PutResult) string { return "" })
		return string(code)
	}})
	for _, op := range []string{"lookup", "prefix_lookup"} {
		exchange, err := g.fl.DoExchange(ctx)
		require.NoError(g.t, err)
		sendOne(g.t, exchange, command(fmt.Sprintf(`{"op":%q,"table":"d.t"}`, op)))
		for range 2 { // the schema, and an answer
			_, err := exchange.Recv()
			require.NoError(g.t, err)
		}
		out = append(out, openStream{"DoExchange " + op, func() string {
			code, _ := drained(exchange.Recv, func(*flight.FlightData) string { return "" })
			return string(code)
		}})
	}
	out = append(out, g.idleBodies(ctx, bearer)...)
	require.Eventually(g.t, func() bool {
		return strings.Contains(g.must("root", "GET", "/v1/databases/d/tables/u/count", ""), `"count":10002`) // and DoPut's
	}, time.Minute, 10*time.Millisecond)
	return out
}

// idleBodies begins to write to d.u: 10,000 rows as NDJSON and one as Arrow, which are written;
// then nothing more comes.
func (g *guarded) idleBodies(ctx context.Context, bearer string) (out []openStream) {
	var message bytes.Buffer
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).Append(1)
	require.NoError(g.t, ipc.NewWriter(&message, ipc.WithSchema(schema)).Write(b.NewRecordBatch()))
	for _, of := range []struct{ contentType, first string }{
		{"application/x-ndjson", strings.Repeat(`{"a":1}`+"\n", 10_000)}, // a chunk
		{"application/vnd.apache.arrow.stream", message.String()},
	} {
		body, w := io.Pipe()
		g.t.Cleanup(func() { body.Close() })
		answered := make(chan *http.Response, 1)
		go func() {
			answered <- g.beginAs(ctx, http.MethodPost, "/v1/databases/d/tables/u/records", bearer, "application/json", of.contentType, body) //nolint:bodyclose // by ended
		}()
		_, err := io.WriteString(w, of.first)
		require.NoError(g.t, err)
		out = append(out, openStream{"body of " + of.contentType, func() string { return textOf(g.t, <-answered) }})
	}
	return out
}

func (g *guarded) begin(ctx context.Context, method, path, bearer, accept string, body io.Reader) *http.Response {
	return g.beginAs(ctx, method, path, bearer, accept, "application/x-ndjson", body)
}

func (g *guarded) beginAs(ctx context.Context, method, path, bearer, accept, contentType string, body io.Reader) *http.Response {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+g.addr.HTTP+path, body)
	require.NoError(g.t, err)
	req.Header.Set("Authorization", bearer)
	req.Header.Set("Accept", accept)
	req.Header.Set("Content-Type", contentType)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(g.t, err)
	return resp
}

func textOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return string(text)
}

// sendOne sends one batch with a row, and leaves the stream open.
func sendOne(t *testing.T, s flight.DataStreamWriter, d *flight.FlightDescriptor) {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil)
	w := flight.NewRecordWriter(s, ipc.WithSchema(schema))
	w.SetFlightDescriptor(d)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).Append(1)
	require.NoError(t, w.Write(b.NewRecordBatch()))
}

// soon is when what is open has ended: 5 s on a machine that does nothing else, and well below
// the 30 s after which a body that waits ends anyway.
const soon = 20 * time.Second

// What is open when a grant is taken back ends within 5 s, while nothing comes and nothing
// is asked: reads and writes of each kind, through both doors.
func TestGrantsTakenBack(t *testing.T) {
	g := startGuarded(t)
	defer g.stop(t)
	g.fl = g.flightClient(t)
	back := g.grant("user:pat", "d", "read,write")
	streams := g.idleStreams()
	cut := g.begin(g.t.Context(), http.MethodGet, "/v1/databases/d/tables/u/changelog?from=earliest", g.bearer("pat"), "application/vnd.apache.arrow.stream", nil)
	defer cut.Body.Close()
	require.Equal(t, 200, cut.StatusCode)
	back()
	taken := time.Now()
	for _, s := range streams {
		require.Contains(t, s.ended(), "database_not_found", s.name)
		t.Logf("%s ended after %v", s.name, time.Since(taken))
	}
	_, err := io.ReadAll(cut.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "an Arrow stream has no place for a code, and is broken off")
	require.Less(t, time.Since(taken), soon)
}

// Bodies of rows that have not ended end with their caller's token, while nothing comes; what
// came before is written, and said to be.
func TestIdleBodiesEndWithTheirToken(t *testing.T) {
	g := startGuarded(t)
	defer g.stop(t)
	g.grant("user:pat", "d", "write")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	written := regexp.MustCompile(`"accepted":(10000|1)\b`)
	for life := 3 * time.Second; ; life *= 2 { // on a busy machine one may end before anything is written
		short, err := g.key.Sign("pat", nil, time.Now(), life)
		require.NoError(t, err)
		all, began := true, time.Now()
		for _, s := range g.idleBodies(ctx, "Bearer "+short) {
			text := s.ended()
			require.Contains(t, text, `"code":"unauthenticated"`, s.name)
			all = all && written.MatchString(text)
		}
		if all {
			require.Less(t, time.Since(began), life+soon)
			return
		}
		require.Less(t, life, 30*time.Second)
	}
}
