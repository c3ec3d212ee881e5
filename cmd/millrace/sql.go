package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/sql"
)

// maxScriptBytes bounds a script, which is read whole: loading data is put's work.
const maxScriptBytes = 64 << 20

type sqlCmd struct {
	connection
	output
	Statements string `arg:"" optional:"" help:"One statement or several, with a semicolon between them."`
	File       string `short:"f" help:"Take the statements from a file; - is standard input." placeholder:"FILE"`
	Database   string `short:"d" help:"The database of tables that are named without one, until a USE." placeholder:"NAME"`
	Params     string `help:"Values for the ? of a single statement, as a JSON array." placeholder:"JSON"`
}

// Run implements the command.
func (c *sqlCmd) Run(ctx context.Context, a *app) error {
	script, err := c.script(a)
	if err != nil {
		return err
	}
	pieces, err := sql.Split(script)
	if err != nil {
		return c.at(err, 0)
	}
	if len(pieces) == 0 {
		return usagef("there is no statement to run")
	}
	var params []json.RawMessage
	if c.Params != "" {
		if len(pieces) > 1 {
			return usagef("--params goes with a single statement, and there are %d", len(pieces))
		}
		if err := json.Unmarshal([]byte(c.Params), &params); err != nil {
			return usagef("--params %q is not a JSON array: %v", c.Params, err)
		}
	}
	cl, err := c.client(a)
	if err != nil {
		return err
	}
	// One file takes all answers, one after the other.
	out, end, err := c.open(a)
	if err != nil {
		return err
	}
	return end(c.run(ctx, a, cl, out, pieces, params))
}

// run runs the statements in turn, up to the first that fails.
func (c *sqlCmd) run(ctx context.Context, a *app, cl *client.Client, out io.Writer, pieces []sql.Piece, params []json.RawMessage) error {
	answers := 0
	for _, p := range pieces {
		database, isUse, err := sql.ParseUse(p.Text)
		if err == nil && isUse {
			if _, err = cl.Database(ctx, database); err == nil {
				c.Database = database
				continue
			}
		}
		if err == nil {
			r := openapi.SQLRequest{SQL: p.Text, Params: params, Database: c.Database}
			if sql.Reads(p.Text) {
				if answers++; answers > 1 && c.Format == "table" {
					fmt.Fprintln(out)
				} else if answers > 1 && (c.Format == "arrow" || c.Format == "parquet") {
					err = errs.New(errs.InvalidRequest, "--format %s holds one answer, and this is the second", c.Format)
				}
				if err == nil {
					err = c.query(ctx, a, cl, out, r)
				}
			} else {
				err = c.change(ctx, cl, out, r)
			}
		}
		if err != nil {
			line := 0
			if c.File != "" || len(pieces) > 1 {
				line = p.Line
			}
			return c.at(err, line)
		}
	}
	return nil
}

// script is the text of the statements.
func (c *sqlCmd) script(a *app) (string, error) {
	if (c.Statements == "") == (c.File == "") {
		return "", usagef("give statements, or a file of them with -f")
	}
	if c.File == "" {
		return c.Statements, nil
	}
	in := a.stdin
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxScriptBytes+1))
	if err == nil && len(b) > maxScriptBytes {
		err = errs.New(errs.TooLarge, "%s has more than %d MiB; load data with millrace put", c.File, maxScriptBytes>>20)
	}
	return string(b), err
}

// at says in an error where in the script it happened; line 0: in the only
// statement of the command line.
func (c *sqlCmd) at(err error, line int) error {
	e, ok := errors.AsType[*errs.Error](err)
	if !ok {
		if line > 0 {
			return fmt.Errorf("line %d: %w", line, err)
		}
		return err
	}
	out := *e
	if line > 0 && !strings.HasPrefix(out.Message, "line ") {
		out.Message = fmt.Sprintf("line %d: %s", line, out.Message)
	}
	if c.File != "" && c.File != "-" {
		out.Message = c.File + ", " + out.Message
	}
	return &out
}

// query runs a statement that gives rows, and writes them.
func (c *sqlCmd) query(ctx context.Context, a *app, cl *client.Client, out io.Writer, r openapi.SQLRequest) error {
	if c.Format == "table" && sql.ShowsStatement(r.SQL) {
		return showStatement(ctx, cl, out, r)
	}
	open := cl.SQLArrow
	if c.Format == "ndjson" {
		open = cl.SQLNDJSON
	}
	s, err := open(ctx, r)
	if err != nil {
		return err
	}
	defer s.Close()
	return c.write(a, out, s)
}

// showStatement writes the statement of SHOW CREATE TABLE as people read it, on
// several lines.
func showStatement(ctx context.Context, cl *client.Client, out io.Writer, r openapi.SQLRequest) error {
	res, err := cl.SQL(ctx, r, true)
	if err != nil {
		return err
	}
	var text string
	if len(res.Rows) != 1 || len(res.Rows[0]) != 1 || json.Unmarshal(res.Rows[0][0], &text) != nil {
		return errs.New(errs.Internal, "the server's answer is not one statement")
	}
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintln(out, printable(line))
	}
	return nil
}

// change runs a statement that gives no rows, and says for people what it did.
func (c *sqlCmd) change(ctx context.Context, cl *client.Client, out io.Writer, r openapi.SQLRequest) error {
	res, err := cl.SQL(ctx, r, false)
	if err != nil || c.Format != "table" {
		return err
	}
	switch strings.ToUpper(strings.Fields(r.SQL)[0]) {
	case "INSERT":
		fmt.Fprintf(out, "%s written\n", plural(int(res.RowsAffected), "row"))
	case "DELETE":
		fmt.Fprintf(out, "%s deleted\n", plural(int(res.RowsAffected), "row"))
	default:
		fmt.Fprintln(out, "done")
	}
	return nil
}
