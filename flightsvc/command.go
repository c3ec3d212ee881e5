package flightsvc

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
)

// The operations of a command.
const (
	opScan         = "scan"
	opPut          = "put"
	opLookup       = "lookup"
	opPrefixLookup = "prefix_lookup"
)

// ops are all of them.
var ops = []string{opScan, opPut, opLookup, opPrefixLookup}

// command is what a descriptor or a ticket asks for.
type command struct {
	op     string // "" when a path names a table and the call says what to do
	path   string // "db.t", with a virtual suffix
	scan   *router.ReadRequest
	put    *putCommand
	lookup *lookupCommand
	prefix *prefixCommand
}

type putCommand struct {
	Op      string            `json:"op"`
	Table   string            `json:"table"`
	TableID *millrace.TableID `json:"table_id"`
	Mode    string            `json:"mode"`
	Partial bool              `json:"partial"`
	Acks    string            `json:"acks"`

	WriterID    string `json:"writer_id"`
	WriterEpoch uint64 `json:"writer_epoch"`
}

type lookupCommand struct {
	Op             string            `json:"op"`
	Table          string            `json:"table"`
	TableID        *millrace.TableID `json:"table_id"`
	Columns        []string          `json:"columns"`
	InsertIfAbsent bool              `json:"insert_if_absent"`
}

type prefixCommand struct {
	Op      string            `json:"op"`
	Table   string            `json:"table"`
	TableID *millrace.TableID `json:"table_id"`
	Columns []string          `json:"columns"`
	Limit   *int64            `json:"limit"` // rows of each prefix
}

// parseDescriptor reads a descriptor.
func parseDescriptor(d *flight.FlightDescriptor) (*command, error) {
	switch d.GetType() {
	case flight.DescriptorPATH:
		if len(d.Path) != 1 && len(d.Path) != 2 {
			return nil, errs.New(errs.InvalidValue, `a path has one element, "database.table", or two, "database" and "table"; this one has %d`, len(d.Path))
		}
		return &command{path: strings.Join(d.Path, ".")}, nil
	case flight.DescriptorCMD:
		return parseCommand(d.Cmd)
	default:
		return nil, errs.New(errs.InvalidValue, `the descriptor is neither a path, such as ["database","table"], nor a command, such as {"op":"scan","table":"database.table"}`)
	}
}

// isJSON says whether a command or ticket is one of ours in JSON.
func isJSON(b []byte) bool {
	b = bytes.TrimLeft(b, " \t\r\n")
	return len(b) > 0 && b[0] == '{'
}

// parseCommand reads the bytes of a command.
func parseCommand(b []byte) (*command, error) {
	switch {
	case len(b) == 0:
		return nil, errs.New(errs.InvalidValue, `the command is empty; it is JSON, such as {"op":"scan","table":"database.table"}`)
	case isJSON(b):
		return parseJSON(b)
	case isAny(b):
		return nil, errs.New(errs.NotImplemented, "Flight SQL is not implemented yet; a command is JSON, such as {\"op\":\"scan\",\"table\":\"database.table\"}")
	}
	return nil, errs.New(errs.NotImplemented, "a command that is text is SQL, which is not implemented yet; a command is JSON, such as {\"op\":\"scan\",\"table\":\"database.table\"}")
}

// isAny says whether a command or ticket is a message of Flight SQL.
func isAny(b []byte) bool {
	var a anypb.Any
	return proto.Unmarshal(b, &a) == nil && strings.HasPrefix(a.TypeUrl, "type.googleapis.com/")
}

func parseJSON(b []byte) (*command, error) {
	if len(b) > router.MaxRequestBytes {
		return nil, errs.New(errs.TooLarge, "a command has at most %d bytes, this one has %d", router.MaxRequestBytes, len(b))
	}
	var head struct {
		Op string `json:"op"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, errs.New(errs.InvalidRequest, "the command is not a JSON object: %v", err)
	}
	if head.Op != "" && !slices.Contains(ops, head.Op) {
		return nil, errs.New(errs.InvalidValue, "op %q is not one of %s", clipText(head.Op, 64), strings.Join(ops, ", "))
	}
	c := &command{op: head.Op}
	switch head.Op {
	case "", opScan:
		c.op = opScan
		scan, err := router.DecodeReadRequest(b, map[string]*string{"op": &head.Op})
		if err != nil {
			return nil, err
		}
		c.scan, c.path = scan, scan.Table
	case opPut:
		c.put = &putCommand{}
		if err := router.DecodeStrict(b, c.put); err != nil {
			return nil, err
		}
		c.path = c.put.Table
	case opLookup:
		c.lookup = &lookupCommand{}
		if err := router.DecodeStrict(b, c.lookup); err != nil {
			return nil, err
		}
		c.path = c.lookup.Table
	case opPrefixLookup:
		c.prefix = &prefixCommand{}
		if err := router.DecodeStrict(b, c.prefix); err != nil {
			return nil, err
		}
		c.path = c.prefix.Table
	}
	if c.path == "" {
		return nil, errs.New(errs.InvalidValue, `the command names no table: give "table":"database.table"`)
	}
	return c, nil
}

// read is the read request of a command that is for reading.
func (c *command) read() (*router.ReadRequest, error) {
	switch c.op {
	case "":
		return &router.ReadRequest{}, nil
	case opScan:
		if c.scan.PageToken != "" || c.scan.PageSize != nil {
			return nil, errs.New(errs.InvalidValue, "page_size and page_token are of JSON pages; a Flight read is a stream")
		}
		return c.scan, nil
	case opPut:
		return nil, errs.New(errs.InvalidValue, `"op":"put" is for DoPut; read with "op":"scan"`)
	}
	return nil, errs.New(errs.InvalidValue, `"op":%q is for DoExchange; read with "op":"scan"`, c.op)
}
