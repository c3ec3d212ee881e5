package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

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
	in, err := openInput(a, c.File, c.InputFormat)
	if err != nil {
		return err
	}
	defer in.close()
	l, skipped, err := c.loader(in, cols)
	if err != nil {
		return err
	}
	bar := c.progress(a, in)
	begin := time.Now()
	result, err := c.upload(ctx, t, l, client.WriteOptions{
		Mode: openapi.WriteMode(c.Mode), Columns: c.Columns, ContinueOnError: c.OnError == "continue", TableID: described.ID,
	})
	bar.end()
	if skipped != nil {
		result.Rejected += skipped.count
	}
	if err != nil {
		if result.Accepted > 0 {
			return fmt.Errorf("stopped after %s: %w", plural(int(result.Accepted), "row"), err)
		}
		return err
	}
	took := max(time.Since(begin), time.Millisecond)
	fmt.Fprintf(a.stdout, "%s into %s in %s (%s read, %s rows/s)\n", plural(int(result.Accepted), "row"), t,
		took.Round(time.Millisecond), byteSize(bar.read), grouped(int64(float64(result.Accepted)/took.Seconds())))
	return c.report(result, skipped)
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

// upload streams a body while it is made. When the server answers before the end,
// the rest is not made.
func (c *putCmd) upload(ctx context.Context, t *client.Table, l loader, o client.WriteOptions) (client.WriteResult, error) {
	body, pipe := io.Pipe()
	made := make(chan error, 1)
	go func() {
		err := l.send(pipe)
		if isBadRow(err) {
			_ = pipe.Close()
		} else {
			_ = pipe.CloseWithError(err) // nil ends it well
		}
		made <- err
	}()
	write := t.WriteNDJSON
	if l.arrow() {
		write = t.WriteArrow
	}
	result, err := write(ctx, body, o)
	_ = body.CloseWithError(errAnswered)
	makeErr := <-made
	if partial, ok := client.PartialResult(err); ok {
		result = partial
	}
	if makeErr != nil && !isAnswered(makeErr) && (err == nil || !isBadRow(makeErr)) {
		return result, makeErr // the cause; err only says that the body broke off
	}
	return result, err
}

// bar is the progress of a load: on a terminal a bar, else nothing but a count.
type bar struct {
	read int64
	show *progressbar.ProgressBar
}

func (c *putCmd) progress(a *app, in *input) *bar {
	b := &bar{}
	if !c.NoProgress && isTerminal(a.stderr) {
		b.show = progressbar.NewOptions64(in.size,
			progressbar.OptionSetWriter(a.stderr), progressbar.OptionSetDescription(printable(in.name)),
			progressbar.OptionShowBytes(true), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(), progressbar.OptionFullWidth())
	}
	b.add(int(in.read.n)) // the beginning has been looked at
	in.read.tell = b.add
	return b
}

func (b *bar) add(n int) {
	b.read += int64(n)
	if b.show != nil {
		_ = b.show.Add(n) // a bar that cannot be drawn is no reason to stop
	}
}

func (b *bar) end() {
	if b.show != nil {
		_ = b.show.Finish()
	}
}
