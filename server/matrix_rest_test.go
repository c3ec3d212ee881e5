package server

import (
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/icebergrest"
	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/rest"
	"github.com/millrace/millrace/sql"
)

// sample is an operation of the document as somebody would call it, over HTTP and as an
// action of Flight; members are as of an action's body.
type sample struct {
	need    need
	members string
	ok      []errs.Code
	shows   string
	shownTo need
	unseen  bool
}

var (
	known     = need{rule: "known caller"}
	ofTable   = need{rule: "describe", on: theTable}
	ofDB      = need{rule: "describe", on: "d"}
	writing   = need{rule: "write", on: theTable}
	readAll   = need{rule: "read", on: theTable, columns: "abc"}
	adminOf   = need{rule: "admin", on: theTable}
	overAll   = need{rule: "admin", on: everything}
	ofParted  = need{rule: "describe", on: parted}
	wholeOf   = need{rule: "read", on: theTable, whole: true}
	inserting = need{rule: "read", on: theTable, columns: "abc", also: "write"}
)

func reading(columns string) need { return need{rule: "read", on: theTable, columns: columns} }

// samples are by operation.
func samples() map[string][]sample {
	const t, row = `"database":"d","table":"t"`, `{"a":1,"b":"x","c":"secret"}`
	return map[string][]sample{
		"get_info": {{need: known}}, "whoami": {{need: known}},
		"list_databases":  {{need: need{rule: "describe"}, shows: `"d"`, shownTo: ofDB}},
		"create_database": {{need: need{rule: "create", on: everything}, members: `"name":"d"`, ok: []errs.Code{errs.DatabaseAlreadyExists}}},
		"get_database":    {{need: ofDB, members: `"database":"d"`}},
		"drop_database":   {{need: need{rule: "drop", on: "d"}, members: `"database":"d"`, ok: []errs.Code{errs.DatabaseNotEmpty}}},
		"list_tables":     {{need: ofDB, members: `"database":"d"`, shows: `"t"`, shownTo: ofTable}},
		"create_table": {{
			need: need{rule: "create", on: "d"}, members: `"database":"d","name":"t","columns":[{"name":"a","type":"INT"}]`, ok: []errs.Code{errs.TableAlreadyExists},
		}},
		"get_table":        {{need: ofTable, members: t}},
		"alter_table":      {{need: need{rule: "alter", on: theTable}, members: t + `,"ops":[{"op":"set_comment","comment":"x"}]`}},
		"drop_table":       {{need: need{rule: "drop", on: doomed}, members: `"database":"d","table":"x"`}},
		"list_schemas":     {{need: ofTable, members: t}},
		"get_schema":       {{need: ofTable, members: t + `,"schema_id":1`}},
		"list_buckets":     {{need: ofTable, members: t}},
		"get_offsets":      {{need: ofTable, members: t + `,"at":"latest"`}},
		"list_partitions":  {{need: ofParted, members: `"database":"d","table":"p"`}},
		"create_partition": {{need: need{rule: "create", on: parted}, members: `"database":"d","table":"p","partition":{"dt":"x"}`, ok: []errs.Code{errs.PartitionAlreadyExists}}},
		"drop_partition":   {{need: need{rule: "alter", on: parted}, members: `"database":"d","table":"p","name":"dt=nix"`, ok: []errs.Code{errs.PartitionNotFound}}},
		"write_records":    {{need: writing, members: t + `,"rows":[` + row + `]`}},
		"get_row": {
			{need: readAll, members: t + `,"pk":{"a":1}`}, {need: reading("ab"), members: t + `,"pk":{"a":1},"columns":"b"`},
		},
		"put_row":           {{need: writing, members: t + `,"pk":{"a":1},"row":` + row}},
		"patch_row":         {{need: writing, members: t + `,"pk":{"a":1},"row":{"b":"y"}`}},
		"delete_row":        {{need: writing, members: t + `,"pk":{"a":7}`}},
		"get_row_by_key":    {{need: readAll, members: t + `,"key":"1"`}, {need: reading("a"), members: t + `,"key":"1","columns":"a"`}},
		"put_row_by_key":    {{need: writing, members: t + `,"key":"1","row":` + row}},
		"patch_row_by_key":  {{need: writing, members: t + `,"key":"1","row":{"b":"y"}`}},
		"delete_row_by_key": {{need: writing, members: t + `,"key":"7"`}},
		"lookup_rows": {
			{need: readAll, members: t + `,"keys":[{"a":1}]`},
			{need: reading("ab"), members: t + `,"keys":[{"a":1}],"columns":["b"]`},
			{need: inserting, members: t + `,"keys":[{"a":1}],"insert_if_absent":true`},
		},
		"prefix_lookup": {{need: readAll, members: t + `,"prefix":{"a":1}`}, {need: reading("ab"), members: t + `,"prefix":{"a":1},"columns":["b"]`}},
		"scan":          {{need: readAll, members: t}, {need: reading("ab"), members: t + `,"columns":["a","b"]`}},
		"scan_get": {
			{need: readAll, members: t},
			{need: reading("b"), members: t + `,"columns":"b"`},
			{need: reading("ac"), members: t + `,"columns":"a","filter":"c = 'x'"`},
			{need: readAll, members: `"database":"d","table":"t$changelog"`},
			{need: reading("b"), members: `"database":"d","table":"t$changelog","columns":"b"`},
			{need: reading("b"), members: `"database":"d","table":"t$lake","columns":"b"`, ok: []errs.Code{""}},
		},
		"count_rows":    {{need: reading(""), members: t}, {need: reading("c"), members: t + `,"filter":"c = 'x'"`}},
		"get_changelog": {{need: readAll, members: t + `,"from":"earliest","wait":"0s"`}, {need: reading("b"), members: t + `,"from":"earliest","wait":"0s","columns":"b"`}},
		"get_lake":      {{need: ofTable, members: t}},
		"tier_lake":     {{need: need{rule: "alter", on: theTable}, members: t}},
		"execute_sql":   {{need: known, members: `"sql":"USE d"`, ok: []errs.Code{errs.InvalidRequest}}}, // statements are in sqlCases
		"list_grants":   {{need: need{rule: "admin"}, members: `"limit":1000`, shows: `"user:someone"`, shownTo: adminOf}},
		"create_grant":  {{need: adminOf, members: strings.Trim(someGrant, "{}")}},
		"delete_grant":  {{need: adminOf, members: `"id":"SOME"`, unseen: true}},
		"list_quotas":   {{need: overAll}},
		"get_quota":     {{need: overAll, members: `"principal":"user:someone"`}},
		"put_quota":     {{need: overAll, members: `"principal":"user:someone","streams":1000`}},
		"delete_quota":  {{need: overAll, members: `"principal":"user:someone"`}},
		"get_cluster":   {{need: overAll}},
	}
}

// mending undoes what some operations do to those tables.
func (g *guarded) mending(id string) func() {
	switch id {
	case "drop_table":
		return g.makeDoomed
	case "delete_grant":
		return g.regrant
	}
	return nil
}

// restCases are the operations that the real router has routes for, over HTTP and as actions.
func (g *guarded) restCases(cases map[string][]matrixCase, declared map[string]millrace.Rule) {
	byRoute := map[string]openapi.Operation{}
	for _, op := range openapi.Operations() {
		byRoute[op.Method+" "+op.Path] = op
	}
	asset := func(path string) bool { return strings.HasPrefix(path, "/docs/") } // as /docs
	err := chi.Walk(rest.New(rest.Options{Logger: slog.New(slog.DiscardHandler)}).Routes(), func(method, path string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		op, ok := byRoute[method+" "+path]
		if !ok && (strings.TrimSuffix(path, "/") == "/docs" || asset(path)) {
			return nil
		}
		require.True(g.t, ok, "%s %s is served, and is not in the document", method, path)
		require.NotEmpty(g.t, op.Rule, op.ID)
		return nil
	})
	require.NoError(g.t, err)
	all := samples()
	for _, op := range openapi.Operations() {
		if slices.Contains(op.Tags, "Iceberg") {
			continue
		}
		name := "http " + op.ID
		declared[name] = op.Rule
		if slices.Contains(op.Tags, "Service") {
			rule := "none"
			if op.ID == "metrics" {
				rule = "known caller"
			}
			cases[name] = []matrixCase{{need: need{rule: rule}, ask: func(authorization string) (errs.Code, string) { return g.http(authorization, op.Method, op.Path, "") }}}
			continue
		}
		for _, s := range all[op.ID] {
			c := matrixCase{what: s.members, need: s.need, ok: s.ok, shows: s.shows, shownTo: s.shownTo, unseen: s.unseen, mend: g.mending(op.ID)}
			c.ask = func(authorization string) (errs.Code, string) {
				req, err := actionRequest(g.t.Context(), op, g.body(s))
				require.NoError(g.t, err)
				var body []byte
				if req.Body != nil {
					if body, err = io.ReadAll(req.Body); err != nil {
						return errs.Internal, err.Error()
					}
				}
				return g.http(authorization, op.Method, req.URL.RequestURI(), string(body))
			}
			cases[name] = append(cases[name], c)
			if op.Unary {
				c.ask = func(authorization string) (errs.Code, string) {
					return g.action(authorization, "millrace."+op.ID, g.body(s))
				}
				cases["flight DoAction millrace."+op.ID] = append(cases["flight DoAction millrace."+op.ID], c)
			}
		}
		delete(all, op.ID)
	}
	require.Empty(g.t, slices.Sorted(maps.Keys(all)), "samples of what is not there")
}

// body is a sample as an action's body.
func (g *guarded) body(s sample) []byte {
	return []byte("{" + strings.Replace(s.members, "SOME", g.someID, 1) + "}")
}

func (g *guarded) http(authorization, method, path, body string) (errs.Code, string) {
	var headers []string
	if authorization != "" {
		headers = []string{"Authorization", authorization}
	}
	status, answer, _ := g.ask(g.t, method, path, body, headers...)
	return problemCode(status, answer), answer
}

// sqlCases are the kinds of statements, through both doors that take them.
func (g *guarded) sqlCases(cases map[string][]matrixCase, declared map[string]millrace.Rule) {
	type st struct {
		text string
		need need
		ok   []errs.Code
		// shows and shownTo are as in a case.
		shows   string
		shownTo need
		mend    func()
	}
	statements := []st{
		{text: "SELECT * FROM d.t", need: readAll},
		{text: "SELECT a, b FROM d.t", need: reading("ab")},
		{text: "SELECT b FROM d.t WHERE a = 1", need: reading("ab")},
		{text: "SELECT a FROM d.t WHERE c = 'x'", need: reading("ac")},
		{text: "SELECT a FROM d.t ORDER BY a LIMIT 1", need: reading("a")},
		{text: "SELECT COUNT(*) FROM d.t", need: reading("")},
		{text: "SELECT MAX(c) FROM d.t", need: reading("c")},
		{text: "SELECT b, COUNT(*) FROM d.t GROUP BY b", need: reading("b")},
		{text: "SELECT b FROM d.t$changelog", need: reading("b")},
		{text: "INSERT INTO d.t VALUES (1, 'x', 'secret')", need: writing},
		{text: "DELETE FROM d.t WHERE a = 7", need: writing},
		{text: "CREATE DATABASE d", need: need{rule: "create", on: everything}, ok: []errs.Code{errs.DatabaseAlreadyExists}},
		{text: "CREATE DATABASE IF NOT EXISTS d", need: need{rule: "create", on: everything}},
		{text: "DROP DATABASE d", need: need{rule: "drop", on: "d"}, ok: []errs.Code{errs.DatabaseNotEmpty}},
		{text: "CREATE TABLE d.t (a INT)", need: need{rule: "create", on: "d"}, ok: []errs.Code{errs.TableAlreadyExists}},
		{text: "DROP TABLE d.x", need: need{rule: "drop", on: doomed}, mend: g.makeDoomed},
		{text: "ALTER TABLE d.t SET ('owner' = 'x')", need: need{rule: "alter", on: theTable}},
		{text: "ALTER TABLE d.p ADD IF NOT EXISTS PARTITION (dt = 'x')", need: need{rule: "create", on: parted}},
		{text: "ALTER TABLE d.p DROP PARTITION (dt = 'nix')", need: need{rule: "alter", on: parted}, ok: []errs.Code{errs.PartitionNotFound}},
		{text: "SHOW DATABASES", need: need{rule: "describe"}, shows: `"d"`, shownTo: ofDB},
		{text: "SHOW TABLES FROM d", need: ofDB, shows: `"t"`, shownTo: ofTable},
		{text: "SHOW PARTITIONS d.p", need: ofParted},
		{text: "SHOW CREATE TABLE d.t", need: ofTable},
		{text: "DESCRIBE d.t", need: ofTable},
		{text: "DESCRIBE d.t$changelog", need: ofTable},
		{text: "USE d", need: known, ok: []errs.Code{errs.InvalidRequest}},
	}
	for _, k := range sql.Kinds() {
		declared["sql "+k.String()] = k.Rule()
	}
	for _, s := range statements {
		k, err := sql.KindOf(s.text)
		require.NoError(g.t, err, s.text)
		require.Equal(g.t, s.need.rule, string(k.Rule()), s.text)
		c := matrixCase{what: s.text, need: s.need, ok: s.ok, shows: s.shows, shownTo: s.shownTo, mend: s.mend}
		body := sqlOf(s.text)
		c.ask = func(authorization string) (errs.Code, string) { return g.http(authorization, "POST", "/v1/sql", body) }
		byAction := c
		byAction.ask = func(authorization string) (errs.Code, string) {
			return g.action(authorization, "millrace.execute_sql", []byte(body))
		}
		cases["sql "+k.String()] = append(cases["sql "+k.String()], c, byAction)
	}
}

// icebergCases are the routes of the catalog for stock readers.
func (g *guarded) icebergCases(cases map[string][]matrixCase, declared map[string]millrace.Rule) {
	const root = "/iceberg/v1/namespaces"
	asks := map[string]matrixCase{
		"GET /iceberg/v1/config":                               {need: known},
		"GET " + root:                                          {need: need{rule: "describe"}, shows: `"d"`, shownTo: ofDB},
		"GET " + root + "/{namespace}":                         {need: ofDB},
		"HEAD " + root + "/{namespace}":                        {need: ofDB},
		"GET " + root + "/{namespace}/tables":                  {need: ofDB, shows: `"t"`, shownTo: ofTable},
		"GET " + root + "/{namespace}/tables/{table}":          {need: wholeOf},
		"HEAD " + root + "/{namespace}/tables/{table}":         {need: ofTable},
		"POST " + root + "/{namespace}/tables/{table}/metrics": {need: ofTable},
		"GET " + root + "/{namespace}/views":                   {need: ofDB},
		"GET " + root + "/{namespace}/views/{view}":            {need: known, ok: []errs.Code{"NoSuchViewException"}},
		"HEAD " + root + "/{namespace}/views/{view}":           {need: known, ok: []errs.Code{errs.TableNotFound}},
	}
	documented := map[string]millrace.Rule{}
	for _, op := range openapi.Operations() {
		if slices.Contains(op.Tags, "Iceberg") {
			documented[op.Method+" "+op.Path] = op.Rule
		}
	}
	for _, route := range icebergrest.New(icebergrest.Options{}).Routes() {
		name := route.Method + " " + route.Path
		require.Equal(g.t, documented[name], route.Rule, name)
		declared["iceberg "+name] = route.Rule
		delete(documented, name)
		c, ok := asks[name]
		if !ok {
			continue
		}
		path := strings.NewReplacer("{namespace}", "d", "{table}", "t", "{view}", "v").Replace(route.Path)
		c.ask = func(authorization string) (errs.Code, string) {
			return g.iceberg(authorization, route.Method, path)
		}
		c.coarse = route.Method == http.MethodHead || strings.Contains(route.Path, "{table}")
		cases["iceberg "+name] = []matrixCase{c}
	}
	require.Empty(g.t, documented, "in the document, and not served")
}

// iceberg asks the catalog for stock readers, and gives its words for errors in ours.
func (g *guarded) iceberg(authorization, method, path string) (errs.Code, string) {
	var headers []string
	if authorization != "" {
		headers = []string{"Authorization", authorization}
	}
	status, answer, _ := g.ask(g.t, method, path, "{}", headers...)
	if status < 300 {
		return "", answer
	}
	var e struct {
		Error struct{ Type string }
	}
	if method != http.MethodHead {
		require.NoError(g.t, json.Unmarshal([]byte(answer), &e), answer)
	}
	switch {
	case status == http.StatusUnauthorized:
		return errs.Unauthenticated, answer
	case status == http.StatusForbidden:
		return errs.PermissionDenied, answer
	case e.Error.Type == "NoSuchNamespaceException":
		return errs.DatabaseNotFound, answer
	case e.Error.Type == "NoSuchTableException", method == http.MethodHead && status == http.StatusNotFound:
		return errs.TableNotFound, answer
	}
	return errs.Code(e.Error.Type), answer
}
