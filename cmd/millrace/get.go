package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row/jsonrow"
)

// rowOutput is output for commands whose rows come as JSON.
type rowOutput struct {
	Format string `help:"table, ndjson or csv." enum:"table,ndjson,csv" default:"table"`
	Null   string `help:"How CSV writes NULL (an empty cell)." placeholder:"TEXT"`
}

func (o rowOutput) writer(a *app) (write func(json.RawMessage) error, end func() error) {
	if o.Format == "ndjson" {
		w := bufio.NewWriterSize(a.stdout, 64<<10)
		return func(r json.RawMessage) error {
			if r == nil {
				r = json.RawMessage("null")
			}
			return writeLine(w, r)
		}, w.Flush
	}
	rows := jsonRows{out: output{Format: o.Format, Null: o.Null}.text(a, a.stdout)}
	early := 0 // keys without a row, before the columns are known
	none := func(n int) error {
		for range n {
			for i := range rows.cells {
				rows.cells[i] = cell{null: true}
			}
			if err := rows.out.row(rows.cells); err != nil {
				return err
			}
		}
		return nil
	}
	return func(r json.RawMessage) error {
			switch {
			case r == nil && rows.index == nil:
				early++
				return nil
			case r == nil:
				return none(1)
			case rows.index == nil:
				if err := rows.learn(r); err != nil {
					return err
				}
				if err := none(early); err != nil {
					return err
				}
			}
			return rows.write(r)
		}, func() error {
			return rows.out.close()
		}
}

type getCmd struct {
	connection
	rowOutput
	Table   string   `arg:"" help:"DATABASE.TABLE."`
	Key     []string `arg:"" help:"The key: column=value for each key column." name:"column=value"`
	Columns []string `help:"Only these columns, in this order." placeholder:"COLUMNS"`
	Prefix  bool     `help:"Get all rows whose key begins so: the key's first columns are enough, the bucket key among them."`
}

// Run implements the command.
func (c *getCmd) Run(ctx context.Context, a *app) error {
	t, err := c.table(a, c.Table)
	if err != nil {
		return err
	}
	key := make(client.Key, len(c.Key))
	for _, kv := range c.Key {
		k, v, ok := strings.Cut(kv, "=")
		if _, twice := key[k]; !ok || k == "" || twice {
			return usagef("%q is not one column=value of the key", kv)
		}
		key[k] = v
	}
	if c.Prefix {
		return c.rows(ctx, a, t, key)
	}
	r, err := t.Get(ctx, key, c.Columns...)
	if err != nil {
		return err
	}
	write, end := c.writer(a)
	if err := write(r); err != nil {
		return err
	}
	return end()
}

// rows prints all rows whose key begins with a prefix.
func (c *getCmd) rows(ctx context.Context, a *app, t *client.Table, prefix client.Key) error {
	cols, _, err := columnsOf(ctx, t)
	if err != nil {
		return err
	}
	for _, col := range cols {
		if text, ok := prefix[col.Name].(string); ok {
			prefix[col.Name] = jsonOfText(col.Type.Kind, text)
		}
	}
	write, end := c.writer(a)
	for r, err := range t.Prefix(ctx, client.PrefixRequest{Prefix: prefix, Columns: c.Columns}) {
		if err != nil {
			return err
		}
		if err := write(r); err != nil {
			return err
		}
	}
	return end()
}

// jsonOfText is a value as a row's JSON has it, of one as an address has it. What
// cannot be one stays as it is, for the server to say so.
func jsonOfText(kind millrace.Kind, text string) any {
	if kind == millrace.Boolean && (text == "true" || text == "false") {
		return text == "true"
	}
	if kind == millrace.Bytes || kind == millrace.Binary {
		if b, err := base64.RawURLEncoding.DecodeString(text); err == nil {
			return b
		}
	}
	return text
}

// keysAtOnce is how many keys a lookup sends at once, the most a server takes.
const keysAtOnce = 1000

type lookupCmd struct {
	connection
	rowOutput
	Table   string   `arg:"" help:"DATABASE.TABLE."`
	File    string   `required:"" help:"Keys, a JSON object a line; - is standard input." placeholder:"FILE"`
	Columns []string `help:"Only these columns, in this order." placeholder:"COLUMNS"`

	InsertIfAbsent bool `help:"Insert a row for each key that has none."`
}

// Run implements the command: rows in the order of the keys, null (NULLs) for a
// key that no row has.
func (c *lookupCmd) Run(ctx context.Context, a *app) (err error) {
	t, err := c.table(a, c.Table)
	if err != nil {
		return err
	}
	in := a.stdin
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	write, end := c.writer(a)
	lines := jsonrow.NewLines(in)
	for more := true; more; {
		keys, first := make([]any, 0, keysAtOnce), int64(0)
		for len(keys) < keysAtOnce {
			line, index, err := lines.Next()
			if errors.Is(err, io.EOF) {
				more = false
				break
			}
			if err != nil {
				return err
			}
			if !json.Valid(line) {
				return errs.Row(errs.InvalidRequest, index, "", "the line is not a JSON object")
			}
			if len(keys) == 0 {
				first = index
			}
			keys = append(keys, json.RawMessage(bytes.Clone(line)))
		}
		if len(keys) == 0 {
			break
		}
		find := t.Lookup
		if c.InsertIfAbsent {
			find = t.LookupOrInsert
		}
		rows, err := find(ctx, keys, c.Columns...)
		if err != nil {
			return shiftRows(err, first)
		}
		for _, r := range rows {
			if err := write(r); err != nil {
				return err
			}
		}
	}
	return end()
}

// shiftRows makes row numbers of a batch those of the file.
func shiftRows(err error, first int64) error {
	e, ok := errors.AsType[*errs.Error](err)
	if !ok || first == 0 {
		return err
	}
	for i, f := range e.Fields {
		if f.Index != nil {
			e.Fields[i].Index = new(*f.Index + first)
		}
	}
	return err
}
