package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// flightConn is a stock Flight client: no option raises its limits.
type flightConn struct{ flight.Client }

func (c *flightConn) close() {
	if c != nil {
		c.Close()
	}
}

// dial opens a Flight connection that lives as long as the test.
func (s *server) dial(t testing.TB) *flightConn {
	t.Helper()
	c, err := flight.NewClientWithMiddleware(s.flight, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	fc := &flightConn{c}
	t.Cleanup(fc.close)
	return fc
}

func pathOf(tb table) *flight.FlightDescriptor {
	return &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{tb.db, tb.name}}
}

func command(t testing.TB, cmd obj) *flight.FlightDescriptor {
	t.Helper()
	b, err := json.Marshal(cmd)
	require.NoError(t, err)
	return &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: b}
}

// scanCommand is a scan of tb with further fields of the read request.
func scanCommand(tb table, request obj) obj {
	cmd := obj{"op": "scan", "table": tb.full()}
	maps.Copy(cmd, request)
	return cmd
}

// meta is what a batch of DoGet says about itself.
type meta struct {
	Bucket *int
	Base   *int64
	Rows   int64
	Next   *int64
	HW     *int64
}

// chunk is a batch as it came.
type chunk struct {
	rec  arrow.RecordBatch
	meta meta
	raw  string
}

// batches is an open DoGet.
type batches struct {
	r      *flight.Reader
	cancel context.CancelFunc
}

// get opens a DoGet of a ticket.
func (c *flightConn) get(ctx context.Context, ticket []byte) (*batches, error) {
	ctx, cancel := context.WithCancel(ctx)
	st, err := c.DoGet(ctx, &flight.Ticket{Ticket: ticket})
	if err != nil {
		cancel()
		return nil, err
	}
	r, err := flight.NewRecordReader(st)
	if err != nil {
		cancel()
		return nil, err
	}
	return &batches{r, cancel}, nil
}

// next returns the next batch; io.EOF at the end.
func (b *batches) next() (chunk, error) {
	if !b.r.Next() {
		if err := b.r.Err(); err != nil && !errors.Is(err, io.EOF) {
			return chunk{}, err
		}
		return chunk{}, io.EOF
	}
	c := chunk{rec: b.r.RecordBatch(), raw: string(b.r.LatestAppMetadata())}
	c.rec.Retain()
	if c.raw != "" {
		if err := json.Unmarshal([]byte(c.raw), &c.meta); err != nil {
			return chunk{}, fmt.Errorf("app_metadata %q: %w", c.raw, err)
		}
	}
	return c, nil
}

// drain reads to the end and returns all rows as text, of all columns or of those named.
func (b *batches) drain(t testing.TB, columns ...string) []string {
	t.Helper()
	defer b.cancel()
	var out []string
	for {
		c, err := b.next()
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		out = append(out, texts(c.rec, columns...)...)
	}
}

// scan plans a read with GetFlightInfo and reads its endpoints one after another; columns, when named, are those rendered.
func (c *flightConn) scan(t testing.TB, desc *flight.FlightDescriptor, columns ...string) (*arrow.Schema, []string) {
	t.Helper()
	ctx := within(t, patience)
	info, err := c.GetFlightInfo(ctx, desc)
	require.NoError(t, err)
	schema, err := flight.DeserializeSchema(info.Schema, nil)
	require.NoError(t, err)
	var rows []string
	for _, ep := range info.Endpoint {
		b, err := c.get(ctx, ep.Ticket.Ticket)
		require.NoError(t, err)
		require.True(t, b.r.Schema().Equal(schema), "an endpoint's schema %v is not the FlightInfo's %v", b.r.Schema(), schema)
		rows = append(rows, b.drain(t, columns...)...)
	}
	return schema, rows
}

// putter is an open DoPut.
type putter struct {
	st     flight.FlightService_DoPutClient
	w      *flight.Writer
	cancel context.CancelFunc
}

func (c *flightConn) put(ctx context.Context, desc *flight.FlightDescriptor, schema *arrow.Schema) (*putter, error) {
	ctx, cancel := context.WithCancel(ctx)
	st, err := c.DoPut(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	w := flight.NewRecordWriter(st, ipc.WithSchema(schema))
	w.SetFlightDescriptor(desc)
	return &putter{st, w, cancel}, nil
}

// send writes a batch with app_metadata, which may be empty. A stream the server has ended says io.EOF; ack then has the reason.
func (p *putter) send(rec arrow.RecordBatch, appMeta string) error {
	if appMeta == "" {
		return p.w.Write(rec)
	}
	return p.w.WriteWithAppMetadata(rec, []byte(appMeta))
}

// ack is a PutResult's metadata.
type ack struct {
	Rows    int64
	AckSeq  int64 `json:"ack_seq"`
	AckRows int64 `json:"ack_rows"`
	Offsets map[string]struct{ Start, End int64 }
	raw     string
}

// ack reads one PutResult; io.EOF after the last.
func (p *putter) ack() (ack, error) {
	r, err := p.st.Recv()
	if err != nil {
		return ack{}, err
	}
	a := ack{raw: string(r.AppMetadata)}
	if a.raw == "" {
		return a, nil
	}
	return a, json.Unmarshal(r.AppMetadata, &a)
}

// finish ends the stream and returns the last PutResult.
func (p *putter) finish() (ack, error) {
	defer p.cancel()
	if err := p.w.Close(); err != nil && !errors.Is(err, io.EOF) {
		return ack{}, err
	}
	if err := p.st.CloseSend(); err != nil {
		return ack{}, err
	}
	var last ack
	for {
		a, err := p.ack()
		if errors.Is(err, io.EOF) {
			return last, nil
		}
		if err != nil {
			return last, err
		}
		last = a
	}
}

// putAll writes batches in one DoPut and returns its final result.
func (c *flightConn) putAll(t testing.TB, desc *flight.FlightDescriptor, recs ...arrow.RecordBatch) (ack, error) {
	t.Helper()
	p, err := c.put(within(t, 2*time.Minute), desc, recs[0].Schema())
	require.NoError(t, err)
	for _, r := range recs {
		if err := p.send(r, ""); err != nil {
			break // the server ended the stream; finish says why
		}
	}
	return p.finish()
}

// exchange sends key batches through one DoExchange and returns the answers' rows, one answer a request.
func (c *flightConn) exchange(t testing.TB, cmd obj, keys ...arrow.RecordBatch) ([][]string, error) {
	t.Helper()
	st, err := c.DoExchange(within(t, patience))
	require.NoError(t, err)
	w := flight.NewRecordWriter(st, ipc.WithSchema(keys[0].Schema()))
	w.SetFlightDescriptor(command(t, cmd))
	for i, k := range keys {
		if err := w.WriteWithAppMetadata(k, fmt.Appendf(nil, "request %d", i)); err != nil {
			break // the answer says why
		}
	}
	if err := st.CloseSend(); err != nil {
		return nil, err
	}
	r, err := flight.NewRecordReader(st)
	if err != nil {
		return nil, err
	}
	var out [][]string
	for r.Next() {
		require.Equal(t, fmt.Sprintf("request %d", len(out)), string(r.LatestAppMetadata()))
		out = append(out, texts(r.RecordBatch()))
	}
	if err := r.Err(); err != nil && !errors.Is(err, io.EOF) {
		return out, err
	}
	return out, nil
}

// action calls an operation by its id and returns the answers' bodies.
func (c *flightConn) action(t testing.TB, name string, body any) ([]byte, error) {
	t.Helper()
	b, err := json.Marshal(body)
	require.NoError(t, err)
	st, err := c.DoAction(within(t, patience), &flight.Action{Type: name, Body: b})
	if err != nil {
		return nil, err
	}
	var out []byte
	for {
		r, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, r.Body...)
	}
}

// refused checks that err is a status with this gRPC code whose ErrorInfo names the reason.
func refused(t testing.TB, err error, code codes.Code, reason string) {
	t.Helper()
	require.Error(t, err)
	st, ok := status.FromError(err)
	require.True(t, ok, "%v", err)
	require.Equal(t, code.String(), st.Code().String(), "%v", err)
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			require.Equal(t, reason, info.Reason, "%v", err)
			return
		}
	}
	t.Fatalf("no ErrorInfo in %v (%v)", err, st.Details())
}
