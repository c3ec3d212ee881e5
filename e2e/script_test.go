package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
)

// Each file of testdata/scripts is one behaviour: requests and, by hand, what must come out. One server, one
// database a file. The commands:
//
//	create NAME [key=(a,b)] [buckets=n]     input: columns. The table is the file's current one from then on.
//	write [mode=m] [columns=(a,b)] [q=…]    input: a JSON array of rows, posted to records
//	ndjson [mode=m] [q=…]                   input: lines, posted to records
//	request                                 input: METHOD PATH (below the table), then the body
//	lookup                                  input: a JSON array of keys; a row or null each
//	changelog [from=n]                      the changelog of bucket 0, one change a line
//	state                                   all rows, sorted by their text
//
// An answer to a write is "status, accepted, rejected, what it took of each bucket's offsets"; a refusal is its status
// and code, and the rows and fields at fault.
func TestScripts(t *testing.T) {
	t.Parallel()
	s := shared(t)
	files, err := filepath.Glob("testdata/scripts/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			db := newDB(t, s)
			var tb table
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				if d.Cmd == "create" {
					buckets := 1
					d.MaybeScanArgs(t, "buckets", &buckets)
					tb = create(t, s, db, d.CmdArgs[0].Key, d.Input, strings.Join(argList(d, "key"), ","), buckets)
					return "ok"
				}
				return step(t, tb, d)
			})
		})
	}
}

func argList(d *datadriven.TestData, key string) []string {
	for _, a := range d.CmdArgs {
		if a.Key == key {
			return a.Vals
		}
	}
	return nil
}

func step(t *testing.T, tb table, d *datadriven.TestData) string {
	t.Helper()
	query := ""
	if q := argList(d, "q"); q != nil {
		query = "?" + strings.Join(q, "&")
	}
	var members []string
	if m := argList(d, "mode"); m != nil {
		members = append(members, fmt.Sprintf(`"mode":%q`, m[0]))
	}
	if cols := argList(d, "columns"); cols != nil {
		members = append(members, fmt.Sprintf(`"columns":["%s"]`, strings.Join(cols, `","`)))
	}
	switch d.Cmd {
	case "write":
		return outcome(t, tb.s.do(t, "POST", tb.path()+"/records"+query, recordsBody(d.Input, members...)))
	case "ndjson":
		return outcome(t, tb.s.do(t, "POST", tb.path()+"/records"+query, d.Input+"\n", "Content-Type", mediaNDJSON))
	case "request":
		line, text, _ := strings.Cut(d.Input, "\n")
		method, path, _ := strings.Cut(line, " ")
		var body any
		if text != "" {
			body = text
		}
		return outcome(t, tb.s.do(t, method, tb.path()+path, body))
	case "lookup":
		return strings.Join(tb.lookup(t, d.Input), "\n")
	case "changelog":
		from := "earliest"
		if f := argList(d, "from"); f != nil {
			from = `{"0":` + f[0] + `}`
		}
		return joined(lines(tb.allChanges(t, from)))
	case "state":
		rows := tb.scan(t, nil)
		slices.Sort(rows)
		return joined(rows)
	}
	d.Fatalf(t, "unknown command %s", d.Cmd)
	return ""
}

// joined is one line each, "nothing" for none.
func joined(ls []string) string {
	if len(ls) == 0 {
		return "nothing"
	}
	return strings.Join(ls, "\n")
}

// outcome renders an answer.
func outcome(t *testing.T, a answer) string {
	t.Helper()
	var b strings.Builder
	if a.status >= 400 {
		var p problem
		require.NoError(t, json.Unmarshal(a.body, &p), "%s", a.body)
		fmt.Fprintf(&b, "%d %s", a.status, p.Code)
		if p.Accepted != nil {
			fmt.Fprintf(&b, " accepted=%d", *p.Accepted)
		}
		for _, e := range p.Errors {
			b.WriteString("\n  ")
			if e.Index != nil {
				fmt.Fprintf(&b, "row %d ", *e.Index)
			}
			fmt.Fprintf(&b, "%s: %s", e.Field, e.Code)
		}
		return b.String()
	}
	var w struct {
		Accepted, Rejected *int64
		Offsets            map[string]struct{ Start, End int64 }
		Errors             []struct {
			Index *int64
			Field string
			Code  string
		}
	}
	if err := json.Unmarshal(a.body, &w); err != nil || w.Accepted == nil {
		return fmt.Sprintf("%d %s", a.status, bytes.TrimSpace(a.body))
	}
	fmt.Fprintf(&b, "%d accepted=%d rejected=%d", a.status, *w.Accepted, *w.Rejected)
	var took []string
	for key, r := range w.Offsets {
		if r.End > r.Start {
			took = append(took, fmt.Sprintf("%s:[%d,%d)", key, r.Start, r.End))
		}
	}
	slices.Sort(took)
	fmt.Fprintf(&b, " offsets=%s", strings.Join(took, " "))
	for _, e := range w.Errors {
		fmt.Fprintf(&b, "\n  row %d %s: %s", *e.Index, e.Field, e.Code)
	}
	return strings.TrimSuffix(b.String(), " offsets=")
}
