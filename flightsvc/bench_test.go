package flightsvc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/row"
)

// noisy makes batches of 8 BIGINT columns that LZ4 cannot shorten, about 2 MiB each.
func noisy(n int) (cols []millrace.Column, recs []arrow.RecordBatch) {
	for i := range 8 {
		cols = append(cols, millrace.Column{ID: millrace.ColumnID(i + 1), Name: fmt.Sprintf("c%d", i), Type: millrace.DataType{Kind: millrace.BigInt}})
	}
	const perBatch = 32_000
	for range n {
		b := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(cols))
		for c := range cols {
			vals := make([]int64, perBatch)
			for i := range vals {
				vals[i] = rand.Int64()
			}
			b.Field(c).(*array.Int64Builder).AppendValues(vals, nil)
		}
		recs = append(recs, b.NewRecordBatch())
		b.Release()
	}
	return cols, recs
}

// drainRaw receives a stream without decoding it and returns its bytes.
func drainRaw(b *testing.B, c flight.Client, ticket []byte) (bytes int64) {
	st, err := c.DoGet(context.Background(), &flight.Ticket{Ticket: ticket})
	require.NoError(b, err)
	for {
		fd, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return bytes
		}
		require.NoError(b, err)
		bytes += int64(len(fd.DataBody))
	}
}

// memoryServer is a stock arrow-go Flight server that sends batches from memory.
type memoryServer struct {
	flight.BaseFlightServer
	recs []arrow.RecordBatch
	opts []ipc.Option
}

func (s *memoryServer) DoGet(_ *flight.Ticket, st flight.FlightService_DoGetServer) error {
	w := flight.NewRecordWriter(st, append(s.opts, ipc.WithSchema(s.recs[0].Schema()))...)
	for _, r := range s.recs {
		if err := w.Write(r); err != nil {
			return err
		}
	}
	return w.Close()
}

// R4: reading a log table over Flight as it is stored, beside a stock arrow-go
// server that sends the same batches from memory to the same client.
func BenchmarkDoGet(b *testing.B) {
	cols, recs := noisy(64)
	run := func(b *testing.B, c flight.Client, ticket []byte) {
		total := drainRaw(b, c, ticket)
		var before, after syscall.Rusage
		require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &before))
		b.SetBytes(total)
		b.ResetTimer()
		for range b.N {
			drainRaw(b, c, ticket)
		}
		b.StopTimer()
		require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &after))
		cpu := cpuOf(&after) - cpuOf(&before)
		b.ReportMetric(float64(total)*float64(b.N)/1e9/cpu.Seconds(), "GB/CPU-s")
	}
	b.Run("millrace", func(b *testing.B) {
		f := newFixture(b)
		f.tableOf("t", false, 1, cols...)
		f.mustWrite(f.dial(), pathOf("d.t"), recs...)
		run(b, f.dial(), jsonOf(obj{"table": "d.t"}))
	})
	b.Run("arrow-go", func(b *testing.B) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(b, err)
		srv := grpc.NewServer()
		flight.RegisterFlightServiceServer(srv, &memoryServer{recs: recs})
		go srv.Serve(l) //nolint:errcheck // stopped below
		defer srv.Stop()
		c, err := flight.NewClientWithMiddleware(l.Addr().String(), nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(b, err)
		defer c.Close()
		run(b, c, []byte("x"))
	})
}

func cpuOf(u *syscall.Rusage) time.Duration {
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// R8: one key looked up over an open DoExchange, beside a TCP ping-pong.
func BenchmarkLookup(b *testing.B) {
	b.Run("exchange", func(b *testing.B) {
		f := newFixture(b)
		c := f.dial()
		f.table("t", true, 4)
		f.mustWrite(c, pathOf("d.t"), rows(0, 10_000, "a"))
		x := f.exchange(c, lookupCmd(nil), schemaOf(field("k", int64s)))
		key := batchOf(b, schemaOf(field("k", int64s)), `[{"k":4711}]`)
		_, err := x.ask(key)
		require.NoError(b, err)
		took := make([]time.Duration, 0, b.N)
		b.ResetTimer()
		for range b.N {
			start := time.Now()
			require.NoError(b, x.w.Write(key))
			if !x.r.Next() {
				b.Fatal(x.r.Err())
			}
			took = append(took, time.Since(start))
		}
		b.ReportMetric(float64(median(took).Nanoseconds()), "ns/median")
	})
	b.Run("tcp", func(b *testing.B) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(b, err)
		defer l.Close()
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			io.Copy(conn, conn) //nolint:errcheck // until the other side closes
		}()
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(b, err)
		defer conn.Close()
		buf := make([]byte, 64)
		took := make([]time.Duration, 0, b.N)
		for range b.N {
			start := time.Now()
			_, err := conn.Write(buf)
			require.NoError(b, err)
			_, err = io.ReadFull(conn, buf)
			require.NoError(b, err)
			took = append(took, time.Since(start))
		}
		b.ReportMetric(float64(median(took).Nanoseconds()), "ns/median")
	})
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// R10: from an acknowledgement to a reader that follows the table.
func BenchmarkAckToTail(b *testing.B) {
	f := newFixture(b)
	c := f.dial()
	f.table("t", false, 1)
	r, err := f.open(f.dial(), jsonOf(obj{"table": "d.t", "until": "never"}))
	require.NoError(b, err)
	r.must()
	p := f.put(c, putCmd(obj{"acks": "stream"}), knSchema)
	require.NoError(b, p.w.Write(rows(0, 0, "")))
	_, err = p.recv()
	require.NoError(b, err)
	seen := make(chan time.Time, 1)
	go func() {
		for r.r.Next() {
			if r.r.RecordBatch().NumRows() > 0 {
				seen <- time.Now()
			}
		}
	}()
	var took []time.Duration
	rec := rows(0, 10, "a")
	b.ResetTimer()
	for range b.N {
		require.NoError(b, p.w.Write(rec))
		for acked := int64(0); acked < int64(10*len(took)+10); {
			a, err := p.recv()
			require.NoError(b, err)
			acked = a.AckRows
		}
		acked := time.Now()
		took = append(took, (<-seen).Sub(acked))
	}
	b.StopTimer()
	r.cancel()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "ns/p99")
}

// Writing over DoPut what LZ4 cannot shorten, to a log in memory.
func BenchmarkDoPut(b *testing.B) {
	cols, recs := noisy(16)
	f := newFixture(b)
	c := f.dial()
	f.tableOf("t", false, 1, cols...)
	b.SetBytes(int64(len(recs)) * recs[0].NumRows() * 64)
	for range b.N {
		f.mustWrite(c, pathOf("d.t"), recs...)
	}
}
