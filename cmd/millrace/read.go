package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/openapi"
)

// readFlags are the fields of the read request.
type readFlags struct {
	TableID    int64    `name:"table-id" help:"The id of the table that is meant; another one is an error." placeholder:"ID"`
	View       string   `help:"rows, changelog or binlog." enum:",rows,changelog,binlog" default:"" placeholder:"VIEW"`
	Tier       string   `help:"union (lake and fresh data), hot or lake." enum:",union,hot,lake" default:"" placeholder:"TIER"`
	Columns    []string `help:"Only these columns, in this order." placeholder:"COLUMNS"`
	Filter     string   `help:"Only rows for which this is true, for example \"tier = 'gold' AND total > 10\"." placeholder:"CONDITION"`
	Params     string   `help:"Values for the ? of the filter, as a JSON array." placeholder:"JSON"`
	From       string   `help:"Where to start: earliest, latest, full, a time, offsets as JSON, or a cursor." placeholder:"POSITION"`
	Until      string   `help:"Where to end: latest, never, a time, or offsets as JSON." placeholder:"POSITION"`
	Limit      int64    `help:"At most this many rows." placeholder:"N"`
	Partitions []string `help:"Only these partitions, by name." placeholder:"NAMES"`
	Buckets    []int    `help:"Only these buckets, by number." placeholder:"NUMBERS"`
}

func (f readFlags) request() (client.ReadRequest, error) {
	r := client.ReadRequest{
		TableID: f.TableID, View: openapi.View(f.View), Tier: openapi.Tier(f.Tier), Columns: f.Columns, Filter: f.Filter,
		From: client.ParsePosition(f.From), Until: client.ParsePosition(f.Until), Limit: f.Limit, Buckets: f.Buckets,
	}
	if f.Limit < 0 {
		return r, usagef("--limit must not be negative")
	}
	if f.Params != "" {
		if err := json.Unmarshal([]byte(f.Params), &r.Params); err != nil {
			return r, usagef("--params %q is not a JSON array: %v", f.Params, err)
		}
	}
	for _, p := range f.Partitions {
		name, err := json.Marshal(p)
		if err != nil {
			return r, usageError{err}
		}
		r.Partitions = append(r.Partitions, name)
	}
	return r, nil
}

// output says in which form rows are written, and where.
type output struct {
	Format string `help:"table, ndjson, csv, arrow (IPC stream) or parquet." enum:"table,ndjson,csv,arrow,parquet" default:"table"`
	Output string `short:"o" help:"Write to this file instead of standard output." placeholder:"FILE"`
	Null   string `help:"How CSV writes NULL (an empty cell)." placeholder:"TEXT"`
	Stats  bool   `help:"Say on standard error what the read cost."`
}

// open returns where to write, and what ends it: it closes the file, and removes
// one that is not whole.
func (o output) open(a *app) (out io.Writer, end func(err error) error, err error) {
	binary := o.Format == "arrow" || o.Format == "parquet"
	if o.Output == "" {
		if binary && isTerminal(a.stdout) {
			return nil, nil, usagef("--format %s is binary; write it to a file with --output FILE", o.Format)
		}
		return a.stdout, func(err error) error { return err }, nil
	}
	f, err := os.Create(o.Output)
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	regular := err == nil && st.Mode().IsRegular() // not a device, which must stay
	return f, func(err error) error {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		if err != nil && regular {
			_ = os.Remove(o.Output) // what lies there is whole, or is not there
		}
		return err
	}, nil
}

func (o output) text(a *app, out io.Writer) textWriter {
	if o.Format == "csv" {
		return newCSVWriter(out, o.Null)
	}
	return newTableWriter(out, o.Output == "" && isTerminal(a.stdout))
}

// source opens the rows of a read as NDJSON or as Arrow.
type source struct {
	ndjson, arrow func(context.Context, client.ReadRequest) (*client.Stream, error)
}

// copyRows reads everything and writes it in the form asked for.
func (o output) copyRows(ctx context.Context, a *app, from source, r client.ReadRequest) (err error) {
	out, end, err := o.open(a)
	if err != nil {
		return err
	}
	defer func() { err = end(err) }()
	open := from.arrow
	if o.Format == "ndjson" {
		open = from.ndjson
	}
	s, err := open(ctx, r)
	if err != nil {
		return err
	}
	defer s.Close()
	return o.write(a, out, s)
}

// write writes a stream in the form asked for, and reports on it.
func (o output) write(a *app, out io.Writer, s *client.Stream) (err error) {
	rows := int64(-1)
	switch o.Format {
	case "ndjson":
		rows, err = copyLines(out, s)
	case "arrow":
		_, err = io.Copy(out, s)
	case "parquet":
		rows, err = parquetOfBatches(s, out)
	default:
		rows, err = textOfBatches(s, o.text(a, out))
	}
	if err != nil {
		return err
	}
	return o.report(a, s, rows)
}

// copyLines copies NDJSON, except for the line that says what went wrong.
func copyLines(out io.Writer, s *client.Stream) (rows int64, err error) {
	w := bufio.NewWriterSize(out, 64<<10)
	for line, err := range s.Lines() {
		if err != nil {
			_ = w.Flush() // what came before the error is worth seeing
			return rows, err
		}
		rows++
		if err := writeLine(w, line); err != nil {
			return rows, err
		}
	}
	return rows, w.Flush()
}

func (o output) report(a *app, s *client.Stream, rows int64) error {
	if err := s.Close(); err != nil {
		return err
	}
	if !o.Stats {
		return nil
	}
	st, known := s.Stats()
	if !known {
		fmt.Fprintln(a.stderr, "the server sent no statistics")
		return nil
	}
	if rows < 0 {
		rows = st.RowsShipped
	}
	fmt.Fprintf(a.stderr, "%s; looked at %s (%s), left out %s (%s), %s on the wire\n", plural(int(rows), "row"),
		plural(int(st.RowsRead), "row"), byteSize(st.BytesRead), plural(int(st.RowsSkipped), "row"), byteSize(st.BytesSkipped), byteSize(s.BytesRead()))
	return nil
}

type scanCmd struct {
	connection
	readFlags
	output
	Table       string `arg:"" help:"DATABASE.TABLE, also with $changelog, $binlog or $lake."`
	Compression string `help:"How an Arrow stream is compressed on the wire: none, stored, lz4 or zstd." enum:",none,stored,lz4,zstd" default:"" placeholder:"CODEC"`
}

// Run implements the command.
func (c *scanCmd) Run(ctx context.Context, a *app) error {
	t, err := c.table(a, c.Table)
	if err != nil {
		return err
	}
	r, err := c.request()
	if err != nil {
		return err
	}
	if strings.EqualFold(c.Until, "never") {
		return usagef("a scan ends; to follow the changes use millrace tail")
	}
	r.Compression = openapi.Compression(c.Compression)
	return c.copyRows(ctx, a, source{ndjson: t.ScanNDJSON, arrow: t.ScanArrow}, r)
}
