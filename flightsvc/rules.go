package flightsvc

import (
	"maps"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/flight"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/openapi"
)

// Rule is what the caller of a method needs on what its command or ticket names.
type Rule struct {
	Method string // DoGet …
	// Command is the op of its command, the type of its action, "path" for a descriptor that
	// is a path, "ticket" for a signed one; "" for methods that take none.
	Command string
	Rule    millrace.Rule
}

// What stands for a command in a Rule.
const (
	byPath   = "path"
	byTicket = "ticket"
)

// methods are the methods of Flight that are there, with the commands that each takes. A
// method without a line is refused. Router and guard check the table of a command; lookups
// that insert absent rows need write besides.
var methods = func() map[string]map[string]millrace.Rule {
	known := millrace.RuleKnown
	describe, read, write := millrace.RuleOf(millrace.VerbDescribe), millrace.RuleOf(millrace.VerbRead), millrace.RuleOf(millrace.VerbWrite)
	actions := map[string]millrace.Rule{flight.CancelFlightInfoActionType: read, flight.RenewFlightEndpointActionType: read}
	for _, op := range openapi.Operations() {
		if op.Unary {
			actions[actionPrefix+op.ID] = op.Rule
		}
	}
	return map[string]map[string]millrace.Rule{
		"Handshake":      {"": known},
		"ListActions":    {"": known},
		"PollFlightInfo": {"": known}, // not offered
		"ListFlights":    {"": describe},
		"GetFlightInfo":  {byPath: read, opScan: read},
		"GetSchema":      {byPath: read, opScan: read, opPut: describe, opLookup: describe, opPrefixLookup: describe},
		"DoGet":          {byTicket: read, opScan: read},
		"DoPut":          {byPath: write, opPut: write},
		"DoExchange":     {opLookup: read, opPrefixLookup: read},
		"DoAction":       actions,
	}
}

// Rules are what callers need, of each method with each command that it takes.
func Rules() []Rule {
	var out []Rule
	all := methods()
	for _, method := range slices.Sorted(maps.Keys(all)) {
		for _, command := range slices.Sorted(maps.Keys(all[method])) {
			out = append(out, Rule{Method: method, Command: command, Rule: all[method][command]})
		}
	}
	return out
}

// Commands are the operations of a command.
func Commands() []string { return slices.Clone(ops) }
