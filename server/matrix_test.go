package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/flightsvc"
	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/sql"
)

// What is done to things in the matrix: t, p and x are tables of d that grants "on the table"
// are on; u is another one, and e another database.
const (
	everything = "*"
	theTable   = "d.t" // keyed, in the lake: a is its key; b and c
	parted     = "d.p" // partitioned
	doomed     = "d.x" // what those drop who may
)

// need is what an operation wants, by the table of ADR 0008 alone.
type need struct {
	rule    string // a verb, "known caller", "none"
	on      string // "": of each thing that is listed, or of none
	columns string // of a read, a letter each; "": any of them
	whole   bool   // a read of all columns there are, were and will be
	also    string // a second verb
}

// matrixCase is an operation through a door.
type matrixCase struct {
	what string // how the cases of an operation are told apart
	need need
	ok   []errs.Code // what may be answered to whom it is allowed; none: success
	ask  func(authorization string) (errs.Code, string)
	// shows stands in the answer of those who have shownTo, and of no others.
	shows   string
	shownTo need
	// unseen is what is answered of what may not be known of, where that is no error.
	unseen bool
	coarse bool   // the answer tells no missing database from a missing table
	mend   func() // undoes what was allowed
}

type matrixGrant struct{ on, verb, columns string }

// role is a caller and all grants that he has.
type role struct {
	name   string
	token  bool
	grants []matrixGrant
}

func matrixRoles() []role {
	roles := []role{{name: "nobody"}, {name: "stranger", token: true}, {name: "root", token: true, grants: []matrixGrant{{on: everything, verb: "admin"}}}}
	for _, on := range []string{"table", "d.u", "d", "e", everything} {
		for _, verb := range []string{"describe", "read", "write", "create", "alter", "drop", "admin"} {
			r := role{name: verb + " on " + on, token: true}
			switch on {
			case "table":
				for _, t := range []string{theTable, parted, doomed} {
					r.grants = append(r.grants, matrixGrant{on: t, verb: verb})
				}
			default:
				r.grants = []matrixGrant{{on: on, verb: verb}}
			}
			roles = append(roles, r)
		}
	}
	for _, columns := range []string{"a", "b", "ab", "abc"} {
		roles = append(roles, role{name: "reader of " + columns, token: true, grants: []matrixGrant{{on: theTable, verb: "read", columns: columns}}})
	}
	return append(roles, role{name: "reader of a, and of b and c", token: true, grants: []matrixGrant{{on: theTable, verb: "read", columns: "a"}, {on: theTable, verb: "read", columns: "bc"}}})
}

// within says whether a grant on one thing holds on another.
func within(grant, on string) bool {
	return grant == everything || grant == on || strings.HasPrefix(on, grant+".")
}

func (r role) has(verb, on string) bool {
	return slices.ContainsFunc(r.grants, func(g matrixGrant) bool {
		switch {
		case verb == "describe" && within(on, g.on) && on != everything: // what is around it, too
			return true
		case !within(g.on, on):
			return false
		case verb == "describe":
			return true
		}
		return g.columns == "" && (g.verb == verb || g.verb == "admin")
	})
}

// outcome is what the ADR says is answered: "" when it is allowed.
func (r role) outcome(n need) errs.Code {
	switch {
	case n.rule == "none":
		return ""
	case !r.token:
		return errs.Unauthenticated
	case n.rule == "known caller" || n.on == "":
		return ""
	}
	if db, _, ofTable := strings.Cut(n.on, "."); n.on != everything {
		if !r.has("describe", db) {
			return errs.DatabaseNotFound
		}
		if ofTable && !r.has("describe", n.on) {
			return errs.TableNotFound
		}
	}
	for _, verb := range []string{n.rule, n.also} {
		if verb == "" || r.has(verb, n.on) {
			continue
		}
		var columns string
		for _, g := range r.grants {
			if g.on == n.on && verb == "read" && !n.whole {
				columns += g.columns
			}
		}
		if columns == "" {
			return errs.PermissionDenied
		}
		if strings.ContainsFunc(n.columns, func(c rune) bool { return !strings.ContainsRune(columns, c) }) {
			return errs.ColumnDenied
		}
	}
	return ""
}

// TestAccessMatrix asks for everything there is, through every door, as everybody: each
// operation of the document, each action and method of Flight, each kind of statement, each
// route of the catalog for stock readers; what comes must be what the ADR's table says.
// Something without a case, or whose case and declared rule differ, fails it.
func TestAccessMatrix(t *testing.T) {
	g := startGuarded(t)
	defer g.stop(t)
	g.matrixTables()
	cases := map[string][]matrixCase{} // by door and name
	declared := map[string]millrace.Rule{}
	g.restCases(cases, declared)
	g.sqlCases(cases, declared)
	g.icebergCases(cases, declared)
	g.flightCases(cases, declared)
	for name := range declared {
		require.NotEmpty(t, cases[name], "%s has a rule and no case", name)
	}
	roles := matrixRoles()
	for i, r := range roles {
		g.endow(fmt.Sprintf("m%d", i), r)
	}
	asked := 0
	for i, r := range roles {
		before := g.standing()
		for name, cs := range cases {
			if declared[name] == "" {
				t.Fatalf("%s is there, and has no rule", name)
			}
			for _, c := range cs {
				require.True(t, strings.HasPrefix(name, "sql ") || c.need.rule == string(declared[name]), "%s: the rule is %q, and the ADR says %q", name, declared[name], c.need.rule)
				g.askCase(name, c, r, fmt.Sprintf("m%d", i))
				asked++
			}
		}
		if !slices.ContainsFunc(r.grants, func(g matrixGrant) bool {
			return g.verb != "read" && g.verb != "describe" && g.on != "e" && g.on != "d.u"
		}) {
			require.Equal(t, before, g.standing(), "%s may change nothing, and did", r.name)
		}
	}
	t.Logf("%d operations, %d roles, %d asked", len(declared), len(roles), asked)
}

func (g *guarded) askCase(name string, c matrixCase, r role, user string) {
	authorization := ""
	switch {
	case r.name == "root":
		authorization = g.bearer("root")
	case r.token:
		authorization = g.bearer(user)
	}
	code, answer := c.ask(authorization)
	where := fmt.Sprintf("%s (%s) as %s: %s", name, c.what, r.name, answer)
	want := r.outcome(c.need)
	if c.unseen && (want == errs.TableNotFound || want == errs.DatabaseNotFound) {
		want = ""
	}
	if c.coarse && want == errs.DatabaseNotFound {
		want = errs.TableNotFound
	}
	if want != "" {
		require.Equal(g.t, string(want), string(code), where)
		if want == errs.PermissionDenied && strings.Contains(answer, "needs a grant") {
			require.Regexp(g.t, fmt.Sprintf(`a grant of \\?"(%s|%s)\\?" on `, c.need.rule, cmp.Or(c.need.also, c.need.rule)), answer, where)
		}
		require.NotContains(g.t, answer, "secret", where)
		return
	}
	if len(c.ok) == 0 {
		require.Empty(g.t, string(code), where)
	} else {
		require.Contains(g.t, c.ok, code, where)
	}
	if c.shows != "" {
		require.Equal(g.t, r.outcome(c.shownTo) == "" && r.token, strings.Contains(answer, c.shows), where)
	}
	if c.mend != nil {
		c.mend()
	}
}

// endow gives a user what a role has; those with an even number through their group.
func (g *guarded) endow(user string, r role) {
	principal := "user:" + user
	if len(user)%2 == 0 {
		principal = "group:" + user + "s"
	}
	if r.name == "root" {
		return
	}
	for _, gr := range r.grants {
		g.grantColumns(principal, gr)
		if gr.on == doomed {
			g.doomedGrants = append(g.doomedGrants, func() { g.grantColumns(principal, gr) })
		}
	}
}

func (g *guarded) grantColumns(principal string, gr matrixGrant) {
	var columns []string
	if gr.columns != "" {
		columns = strings.Split(gr.columns, "")
	}
	g.grant(principal, gr.on, gr.verb, columns...)
}

// matrixTables makes the tables beside those of startGuarded.
func (g *guarded) matrixTables() {
	g.must("root", "POST", "/v1/databases/d/tables", `{"name":"p","columns":[{"name":"a","type":"BIGINT"},{"name":"dt","type":"STRING"}],"partition_by":["dt"],"buckets":1}`)
	g.must("root", "POST", "/v1/databases/d/tables/p/partitions", `{"partition":{"dt":"x"}}`)
	g.makeDoomed()
	g.regrant()
}

func (g *guarded) makeDoomed() {
	g.must("root", "POST", "/v1/databases/d/tables", `{"name":"x","columns":[{"name":"a","type":"BIGINT"}],"buckets":1}`)
	for _, again := range g.doomedGrants {
		again()
	}
}

// regrant makes the grant that those take back who may.
func (g *guarded) regrant() {
	var made struct{ ID string }
	body := g.must("root", "POST", "/v1/grants", someGrant)
	require.NoError(g.t, json.Unmarshal([]byte(body), &made))
	g.someID = made.ID
}

const someGrant = `{"principal":"user:someone","on":"d.t","verbs":["describe"]}`

// standing is all that the cases could change.
func (g *guarded) standing() string {
	var b strings.Builder
	for _, path := range []string{"/v1/databases", "/v1/databases/d/tables", "/v1/databases/d/tables/t", "/v1/databases/d/tables/p/partitions", "/v1/databases/d/tables/t/offsets?at=latest", "/v1/grants?limit=1000"} {
		b.WriteString(g.must("root", "GET", path, ""))
	}
	return b.String()
}

// problemCode is the code of a problem; "" of a success.
func problemCode(status int, answer string) errs.Code {
	if status < 300 {
		return ""
	}
	var p struct{ Code errs.Code }
	if json.Unmarshal([]byte(answer), &p) != nil || p.Code == "" {
		return errs.Code(fmt.Sprintf("status %d", status))
	}
	return p.Code
}

// Every operation that the document has is declared for the matrix, whatever serves it.
func TestRulesOfTheDocumentAndOfFlightAgree(t *testing.T) {
	rules := map[string]millrace.Rule{}
	for _, r := range flightsvc.Rules() {
		rules[r.Method+" "+r.Command] = r.Rule
	}
	for _, op := range openapi.Operations() {
		if op.Unary {
			require.Equal(t, op.Rule, rules["DoAction millrace."+op.ID], op.ID)
		}
	}
	words := map[string]bool{}
	for _, k := range sql.Kinds() {
		require.NotEmpty(t, k.Rule(), k)
		require.False(t, words[k.String()], k)
		words[k.String()] = true
	}
}
