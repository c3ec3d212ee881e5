package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
)

type putCmd struct {
	connection
	Table       string            `arg:"" help:"DATABASE.TABLE."`
	File        string            `required:"" help:"What to load: CSV with a header, NDJSON, JSON (an array or a sequence of objects), Arrow IPC (file or stream), Parquet; gzip or zstd is undone; - is standard input." placeholder:"FILE"`
	InputFormat string            `help:"csv, ndjson, json, arrow or parquet; found out when not given." enum:",csv,ndjson,json,arrow,parquet" default:"" placeholder:"FORMAT"`
	Mode        string            `help:"append (log tables; default there), upsert (keyed tables; default there) or delete." enum:",append,upsert,delete" default:"" placeholder:"MODE"`
	Columns     []string          `help:"A partial update of these columns: the others keep their values." placeholder:"COLUMNS"`
	Rename      map[string]string `help:"A column of the file has another name in the table: --rename 'old=new'. Repeat it." mapsep:"none" placeholder:"OLD=NEW"`
	Null        string            `help:"The text of a CSV cell that means NULL (an empty cell)." placeholder:"TEXT"`
	OnError     string            `help:"abort stops at the first bad row, continue loads the good ones and lists the bad." enum:"abort,continue" default:"abort"`
	NoProgress  bool              `help:"Show no progress bar on a terminal."`

	IdempotencyKey string `help:"Names this load, so that loading the same again within a day writes nothing twice. A file gets a name of its own, and is sent again when the connection breaks." placeholder:"KEY"`
}

// loader sends the rows of an input.
type loader interface {
	// arrow says whether the body is an Arrow stream; otherwise it is NDJSON.
	arrow() bool
	// send writes the body. An error that is a *badRow came after a body that was
	// ended well; any other leaves the body broken.
	send(w io.Writer) error
}

// badRow is a row that cannot be sent. What was sent before it stands.
type badRow struct {
	where string // such as "line 17"
	err   error
}

func (b *badRow) Error() string { return b.where + ": " + b.err.Error() }
func (b *badRow) Unwrap() error { return b.err }

// Run implements the command.
func (c *putCmd) Run(ctx context.Context, a *app) error {
	t, err := c.table(a, c.Table)
	if err != nil {
		return err
	}
	cols, described, err := columnsOf(ctx, t)
	if err != nil {
		return err
	}
	l := &load{c: c, a: a, cols: cols}
	if err := l.open(); err != nil {
		return err
	}
	defer l.close()
	o := client.WriteOptions{
		Mode: openapi.WriteMode(c.Mode), Columns: c.Columns, ContinueOnError: c.OnError == "continue", TableID: described.ID,
		IdempotencyKey: c.IdempotencyKey,
	}
	if l.repeatable() {
		o.Again = l.again
		if o.IdempotencyKey == "" {
			o.IdempotencyKey = uuid.NewString()
		}
	}
	begin := time.Now()
	result, err := l.upload(ctx, t, o)
	l.bar.end()
	if l.skipped != nil {
		result.Rejected += l.skipped.count
	}
	if err != nil {
		return c.stopped(result, err, o.IdempotencyKey)
	}
	took := max(time.Since(begin), time.Millisecond)
	fmt.Fprintf(a.stdout, "%s into %s in %s (%s read, %s rows/s)\n", plural(int(result.Accepted), "row"), t,
		took.Round(time.Millisecond), byteSize(l.bar.read), grouped(int64(float64(result.Accepted)/took.Seconds())))
	if result.Replayed > 0 {
		fmt.Fprintf(a.stdout, "%s of them had been loaded before under this key\n", grouped(result.Replayed))
	}
	return c.report(result, l.skipped)
}

// stopped is the error of a load that stopped, with what was loaded by then and how
// to go on from there.
func (c *putCmd) stopped(r client.WriteResult, err error, key string) error {
	if key != "" && (r.Accepted > 0 || errs.KindOf(errs.CodeOf(err)).Retry) {
		err = &advised{err, "to go on from there, load the same again with --idempotency-key " + key}
	}
	if r.Accepted > 0 {
		return fmt.Errorf("stopped after %s: %w", plural(int(r.Accepted), "row"), err)
	}
	return err
}

// report makes an error of rows that were refused though the load went on.
func (c *putCmd) report(r client.WriteResult, skipped *skippedRows) error {
	if r.Rejected == 0 {
		return nil
	}
	e := errs.New(errs.InvalidValue, "refused %s", plural(int(r.Rejected), "row"))
	if skipped != nil {
		for _, b := range skipped.first {
			e.Fields = append(e.Fields, errs.FieldError{Code: errs.CodeOf(b), Message: b.Error()})
		}
	}
	e.Fields = append(e.Fields, r.Errors...)
	return e
}

// loader makes what sends the rows of an input.
func (c *putCmd) loader(in *input, cols []millrace.Column) (loader, *skippedRows, error) {
	if err := c.checkColumns(cols); err != nil {
		return nil, nil, err
	}
	switch in.format {
	case "csv":
		skipped := &skippedRows{on: c.OnError == "continue"}
		l, err := newCSVLoader(in, cols, c.pick, c.Null, skipped)
		return l, skipped, err
	case "ndjson":
		return &lineLoader{in: in.text, rename: c.Rename}, nil, nil
	case "json":
		return &jsonLoader{in: in.text, rename: c.Rename}, nil, nil
	case "arrow":
		return &arrowStreamLoader{in: in.text, pick: c.pick}, nil, nil
	case "arrowfile":
		l, err := newArrowFileLoader(in, c.pick)
		return l, nil, err
	default:
		l, err := newParquetLoader(in, c.pick)
		return l, nil, err
	}
}

// checkColumns finds misspelt flags before anything is sent.
func (c *putCmd) checkColumns(cols []millrace.Column) error {
	known := func(name string) bool {
		return name == millrace.ColChangeType || slices.ContainsFunc(cols, func(c millrace.Column) bool { return c.Name == name })
	}
	for _, name := range c.Columns {
		if !known(name) {
			return errs.New(errs.UnknownColumn, "--columns names %q, which is no column of %s", name, c.Table)
		}
	}
	for old, name := range c.Rename {
		if !known(name) {
			return errs.New(errs.UnknownColumn, "--rename makes %q of %q, which is no column of %s", name, old, c.Table)
		}
	}
	return nil
}

// pick says which columns of a file are loaded, by position, and under which
// names. With --columns it is those, and the file may have more; without, it is
// all of them, and the server judges.
func (c *putCmd) pick(file []string) (positions []int, names []string, err error) {
	renamed := make([]string, len(file))
	for i, n := range file {
		renamed[i] = n
		if to, ok := c.Rename[n]; ok {
			renamed[i] = to
		}
	}
	for old := range c.Rename {
		if !slices.Contains(file, old) {
			return nil, nil, errs.New(errs.UnknownColumn, "--rename names %q, which the file does not have; it has %s", old, strings.Join(file, ", "))
		}
	}
	for i, n := range renamed {
		if j := slices.Index(renamed, n); j < i {
			return nil, nil, errs.New(errs.DuplicateField, "the file has column %q twice", n)
		}
		if strings.HasPrefix(n, "__index_level_") {
			continue // of pandas
		}
		if len(c.Columns) == 0 || slices.Contains(c.Columns, n) || n == millrace.ColChangeType {
			positions, names = append(positions, i), append(names, n)
		}
	}
	for _, n := range c.Columns {
		if !slices.Contains(renamed, n) {
			return nil, nil, errs.New(errs.MissingColumn, "--columns names %q, which the file does not have; it has %s", n, strings.Join(file, ", "))
		}
	}
	return positions, names, nil
}
