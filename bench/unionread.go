package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// widths are what R13 reads: all columns, and four.
var widths = []struct {
	name    string
	columns []string // nil: all
}{{"19 columns", nil}, {"4 columns", narrowFlights}}

// readUnion is R13: a table of which nine tenths are in the lake and the rest in the log
// is read as one, against arrow-go reading the same Parquet files; in process, and over
// Flight against a stock Flight server that reads them.
func (b *bench) readUnion(ctx context.Context) error {
	recs, err := flights()
	if err != nil {
		return err
	}
	if err := b.readUnionInProcess(ctx, recs); err != nil {
		return err
	}
	return b.readUnionOverFlight(ctx, recs)
}

// rowMetrics are of sides whose work is rows.
func rowMetrics(process string) []metric {
	return []metric{
		{name: "per CPU-second", unit: "rows/CPU-s", target: 0.80, of: func(s *sample, _ bool) float64 { return s.perCPU(process) }},
		{name: "rows/s", unit: "rows/s", target: 0.80, of: func(s *sample, _ bool) float64 { return s.perSecond() }},
	}
}

func (b *bench) readUnionInProcess(ctx context.Context, recs []arrow.RecordBatch) error {
	n, err := openLakeNode(ctx, b.path("union"))
	if err != nil {
		return err
	}
	defer n.discard(ctx)
	t, err := n.create(ctx, &table{name: "unioned", columns: columnsOf(flightSchema), buckets: 1})
	if err != nil {
		return err
	}
	rows := b.size.UnionRows
	old := rows / 10 * 9
	if err := n.write(ctx, t, recs, old); err != nil {
		return err
	}
	if _, err := n.tierNow(ctx, t, old); err != nil {
		return err
	}
	if err := n.write(ctx, t, recs, rows-old); err != nil {
		return err
	}
	paths, err := n.files(ctx, t)
	if err != nil {
		return err
	}
	for _, w := range widths {
		ours := side{name: "router", work: func(ctx context.Context) (float64, int64, error) {
			return b.repeat(rows, func() (int64, error) { return n.read(ctx, t, w.columns) })
		}}
		yard := side{name: "arrow-go's Parquet reader", work: func(ctx context.Context) (float64, int64, error) {
			return b.repeat(old, func() (got int64, err error) {
				err = readParquet(ctx, paths, w.columns, func(rec arrow.RecordBatch) error {
					got += rec.NumRows()
					return nil
				})
				return got, err
			})
		}}
		if err := b.compare(ctx, &comparison{
			id: "R13", what: fmt.Sprintf("union read of %s of %d flights, 90 %% in the lake, in process", w.name, rows),
			ours: ours, yard: yard, metrics: rowMetrics("harness"),
		}); err != nil {
			return err
		}
	}
	return nil
}

// repeat reads several times, each of which must give as many rows.
func (b *bench) repeat(rows int, read func() (int64, error)) (float64, int64, error) {
	for range b.size.Repeat {
		got, err := read()
		if err != nil {
			return 0, 0, err
		}
		if got != int64(rows) {
			return 0, 0, fmt.Errorf("%d rows were read, of %d", got, rows)
		}
	}
	return float64(rows * b.size.Repeat), 0, nil
}

func (b *bench) readUnionOverFlight(ctx context.Context, recs []arrow.RecordBatch) error {
	t := &table{name: "unioned", columns: columnsOf(flightSchema), buckets: 1, properties: lakeProperties()}
	if err := b.server.create(ctx, t); err != nil {
		return err
	}
	fresh := max(1, b.size.UnionRows/10/flightRows) // in batches
	old := 9 * fresh
	if err := b.server.loadRows(ctx, t, recs, old*flightRows); err != nil {
		return err
	}
	if err := b.server.tierNow(ctx, t); err != nil {
		return err
	}
	if err := b.server.loadRows(ctx, t, recs, fresh*flightRows); err != nil {
		return err
	}
	s, err := b.server.lakeStatus(ctx, t)
	if err != nil {
		return err
	}
	if s.Totals.Rows != int64(old*flightRows) {
		return fmt.Errorf("%d rows are in the lake, of %d", s.Totals.Rows, old*flightRows)
	}
	paths, err := parquetFiles(s.Location)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	bare, err := startChild(ctx, "yardstick", self, append([]string{roleParquet}, paths...)...)
	if err != nil {
		return err
	}
	defer bare.stop()
	addr, err := bare.ask("")
	if err != nil {
		return err
	}
	clients, err := b.server.dial(1)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	yards, err := dialFlight(addr, 1)
	if err != nil {
		return err
	}
	defer closeAll(yards)
	read := func(name string, c flight.Client, pid, rows int, ticket []byte) side {
		procs := map[string]int{"server": pid}
		if pid == b.server.pid() {
			procs["millrace"] = pid
		}
		return side{name: name, processes: procs, work: func(ctx context.Context) (float64, int64, error) {
			var wire int64
			for range b.size.Repeat {
				n, err := drain(ctx, c, ticket)
				if err != nil {
					return 0, 0, err
				}
				wire += n
			}
			return float64(rows * b.size.Repeat), wire, nil
		}}
	}
	for _, w := range widths {
		r := request{"compression": "none"}
		if w.columns != nil {
			r["columns"] = w.columns
		}
		columns, err := json.Marshal(w.columns)
		if err != nil {
			return err
		}
		metrics := append(rowMetrics("server"), metric{name: "bytes of a row", unit: "B", of: func(s *sample, _ bool) float64 { return float64(s.Wire) / s.Work }})
		if err := b.compare(ctx, &comparison{
			id: "R13", what: fmt.Sprintf("union read of %s of %d flights, 90 %% in the lake, over Flight", w.name, (old+fresh)*flightRows), metrics: metrics,
			ours: read("millrace", clients[0], b.server.pid(), (old+fresh)*flightRows, scanOf(t, r)),
			yard: read("arrow-go's Parquet reader and Flight server", yards[0], bare.pid(), old*flightRows, columns),
		}); err != nil {
			return err
		}
	}
	return nil
}

// parquetFiles are the data files below the location of a lake table in files, which has
// had one round.
func parquetFiles(location string) ([]string, error) {
	u, err := url.Parse(location)
	if err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(u.Path, "data", "*.parquet"))
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("there are no data files in %s", location)
	}
	return paths, err
}

// parquetServer is what a Go program would write to serve Parquet files: the stock
// Flight server of arrow-go.
type parquetServer struct {
	flight.BaseFlightServer

	paths []string
}

// DoGet sends the columns that the ticket names, null for all, of all files.
func (s *parquetServer) DoGet(t *flight.Ticket, st flight.FlightService_DoGetServer) error {
	var columns []string
	if err := json.Unmarshal(t.Ticket, &columns); err != nil {
		return err
	}
	var w *flight.Writer
	err := readParquet(st.Context(), s.paths, columns, func(rec arrow.RecordBatch) error {
		if w == nil {
			w = flight.NewRecordWriter(st, ipc.WithSchema(rec.Schema()))
		}
		return w.Write(rec)
	})
	if w != nil {
		err = errors.Join(err, w.Close())
	}
	return err
}

// serveParquet serves files until ctx ends; it prints its address.
func serveParquet(ctx context.Context, paths []string, stdout io.Writer) error {
	srv := flight.NewServerWithMiddleware(nil)
	if err := srv.Init("127.0.0.1:0"); err != nil {
		return err
	}
	srv.RegisterFlightService(&parquetServer{paths: paths})
	context.AfterFunc(ctx, srv.Shutdown)
	fmt.Fprintln(stdout, srv.Addr())
	return srv.Serve()
}
