package e2e

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// catalogHistory is what clients did to names of tables, and what a client that goes from front to front found wrong.
type catalogHistory struct {
	began time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
	wrong []string
	count int
	gaps  gaps
}

// nameOp creates or drops the table of a name; changed is whether it did, or found that somebody else had.
type nameOp struct {
	name    string
	create  bool
	changed bool
	unknown bool
}

var nameRegisters = porcupine.Model{
	Init: func() any { return false },
	Step: func(state, input, _ any) (bool, any) {
		op, there := input.(nameOp), state.(bool)
		if op.unknown {
			return true, op.create
		}
		return op.changed == (op.create != there), op.create
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
}

// race creates and drops tables of few names, which others do as well: of two that do the same, one is told that it did.
func (h *catalogHistory) race(ctx context.Context, client int, doors []string, db string, random *rand.Rand) {
	c := &http.Client{Timeout: 45 * time.Second}
	defer c.CloseIdleConnections()
	for i := 0; ctx.Err() == nil; i++ {
		// A name lasts for a while, so that no history gets long.
		op := nameOp{name: fmt.Sprintf("r%d_%d", int(time.Since(h.began)/(20*time.Second)), random.IntN(2)), create: random.IntN(2) == 0}
		door := doors[random.IntN(len(doors))] + "/v1/databases/" + db + "/tables"
		call := int64(time.Since(h.began))
		var a answer
		var err error
		var o fate
		var why string
		if op.create {
			a, err = ask(c, "POST", door, obj{"name": op.name, "columns": columnList("a INT"), "buckets": 1})
			o, why = fateOf(a, err, "table_already_exists")
		} else {
			a, err = ask(c, "DELETE", door+"/"+op.name, nil)
			o, why = fateOf(a, err, "table_not_found")
		}
		op.changed, op.unknown = why == "", o == unknown
		h.add(client, op, call, o, why)
		time.Sleep(time.Duration(200+random.IntN(300)) * time.Millisecond)
	}
}

func (h *catalogHistory) add(client int, op nameOp, call int64, o fate, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ret := int64(time.Since(h.began))
	switch o {
	case rejected:
		return
	case wrong:
		h.wrong = append(h.wrong, why)
		return
	case unknown:
		ret = math.MaxInt64
	case done:
		h.count++
		h.gaps.passed(client)
	}
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: op, Call: call, Return: ret})
}

// travel makes, changes and drops tables, each step through the other front than the one before: what was done through
// one is seen through the other at once.
func (h *catalogHistory) travel(ctx context.Context, doors []string, db string) {
	c := &http.Client{Timeout: 45 * time.Second}
	defer c.CloseIdleConnections()
	at := 0
	// step tries until it is done; again are codes which say that a try before it had been.
	step := func(what, method, path string, body any, again ...string) bool {
		tried := false
		for ctx.Err() == nil {
			a, err := ask(c, method, doors[at%len(doors)]+"/v1/databases/"+db+"/tables"+path, body)
			allowed := again
			if !tried {
				allowed = nil
			}
			switch o, why := fateOf(a, err, allowed...); o {
			case done:
				at++
				return true
			case wrong:
				h.mu.Lock()
				h.wrong = append(h.wrong, fmt.Sprintf("%s %s: %s", what, path, why))
				h.mu.Unlock()
				return false
			case unknown:
				tried = true
			case rejected:
			}
			time.Sleep(50 * time.Millisecond)
		}
		return false
	}
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("t%d", i)
		path := "/" + name
		_ = step("create", "POST", "", obj{"name": name, "columns": columnList("id BIGINT, v BIGINT"), "primary_key": []string{"id"}, "buckets": 2}, "table_already_exists") &&
			step("describe", "GET", path, nil) &&
			step("write", "POST", path+"/records", recordsBody(`[{"id":1,"v":1}]`)) &&
			step("add a column", "PATCH", path, obj{"ops": []obj{{"op": "add_column", "column": obj{"name": "w", "type": "BIGINT"}}}}, "column_already_exists", "invalid_schema") &&
			step("write the column", "POST", path+"/records", recordsBody(`[{"id":1,"v":1,"w":2}]`)) &&
			step("look it up", "POST", path+"/lookup", `{"keys":[{"id":1}],"columns":["w"]}`) &&
			step("drop", "DELETE", path, nil, "table_not_found")
		h.mu.Lock()
		h.count++
		h.mu.Unlock()
		time.Sleep(200 * time.Millisecond)
	}
}

func (h *catalogHistory) check(t testing.TB) {
	t.Helper()
	require.Empty(t, h.wrong, "answers that no fault explains")
	byName := map[string][]porcupine.Operation{}
	for _, o := range h.ops {
		op := o.Input.(nameOp)
		byName[op.name] = append(byName[op.name], o)
	}
	for name, ops := range byName {
		require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(nameRegisters, ops, time.Minute), "%s: %+v", name, ops)
	}
}
