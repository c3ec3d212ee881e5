package flightsvc

import (
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/row/arrowrow"
	"github.com/millrace/millrace/storage/segment"
)

// lookup is what a DoExchange looks up.
type lookup struct {
	table   *millrace.Table
	columns []millrace.Column
	schema  *arrow.Schema // of the answers: _found, then the columns, nullable
}

var foundColumn = millrace.Column{Name: millrace.ColFound, Type: millrace.DataType{Kind: millrace.Boolean}}

// planLookup resolves a lookup.
func (s *Service) planLookup(ctx context.Context, cmd *command) (*lookup, error) {
	if cmd.op != opLookup {
		return nil, errs.New(errs.InvalidValue, `a DoExchange has a command, {"op":"lookup","table":"database.table","columns":["a"]}`)
	}
	if cmd.lookup.InsertIfAbsent {
		return nil, errs.New(errs.NotImplemented, "insert_if_absent is not implemented yet")
	}
	if _, suffix := router.SplitVirtual(cmd.path); suffix != "" {
		return nil, errs.New(errs.InvalidValue, "a lookup reads the current rows of the table itself, not %q", clipText(cmd.path, 64))
	}
	t, err := s.o.Router.Table(ctx, cmd.path, cmd.lookup.TableID)
	if err != nil {
		return nil, err
	}
	if err := router.CheckLookup(t); err != nil {
		return nil, err
	}
	cols, err := router.LookupColumns(t, cmd.lookup.Columns)
	if err != nil {
		return nil, err
	}
	out := append(make([]millrace.Column, 0, 1+len(cols)), foundColumn)
	for _, c := range cols {
		c.Nullable = true
		out = append(out, c)
	}
	return &lookup{table: t, columns: cols, schema: row.TableArrowSchema(t, out)}, nil
}

// DoExchange answers each batch of keys with a batch of rows, in the order of the
// keys. Nothing but the lookup stands between a request and its answer.
func (s *Service) DoExchange(stream flight.FlightService_DoExchangeServer) error {
	ctx := stream.Context()
	c := callOf(ctx)
	cmd, first, err := c.receiveOpening(stream)
	if err != nil {
		return err
	}
	l, err := s.planLookup(ctx, cmd)
	if err != nil {
		return err
	}
	x, err := l.open(s, first)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(schemaFrame(l.schema)); err != nil {
		return err
	}
	for {
		c.idle.Store(true)
		fd, err := stream.Recv()
		c.idle.Store(false)
		if ended(err) {
			return nil
		}
		if err != nil {
			return err
		}
		answer, err := x.answer(ctx, fd)
		if err != nil {
			return err
		}
		if answer == nil {
			continue
		}
		s.metrics.sentBytes.Add(float64(answer.size()))
		if err := stream.SendMsg(answer); err != nil {
			return err
		}
	}
}

// exchange is an open stream of lookups.
type exchange struct {
	*lookup
	s       *Service
	decoder *arrowrow.Decoder
	plan    *arrowrow.Plan
	keys    []int // where the primary key's columns stand in the plan's
	lookups *router.Lookups
}

// open matches the columns of a stream of keys with the primary key.
func (l *lookup) open(s *Service, first *flight.FlightData) (*exchange, error) {
	x := &exchange{lookup: l, s: s}
	var err error
	if x.decoder, err = openDecoder(first); err != nil {
		return nil, err
	}
	t := l.table
	if x.plan, err = arrowrow.NewPlan(x.decoder.Schema(), t.Schema.Columns, arrowrow.Options{Key: t.Names(t.PrimaryKey), KeyOnly: true}); err != nil {
		return nil, err
	}
	for _, c := range x.plan.Columns() {
		if t.Schema.IndexID(c.ID) >= 0 && !slices.Contains(t.PrimaryKey, c.ID) {
			return nil, errs.New(errs.UnknownColumn, "keys have the columns of the primary key (%v) and no others, not %q", t.Names(t.PrimaryKey), c.Name)
		}
	}
	for _, id := range t.PrimaryKey {
		for i, c := range x.plan.Columns() {
			if c.ID == id {
				x.keys = append(x.keys, i)
			}
		}
	}
	x.lookups, err = s.o.Router.OpenLookups(t, l.columns, maxBodyBytes)
	return x, err
}

// answer looks up a batch of keys; nil when the message has none.
func (x *exchange) answer(ctx context.Context, fd *flight.FlightData) (*frame, error) {
	if len(fd.DataHeader) == 0 {
		return nil, nil
	}
	rec, err := x.decoder.Decode(fd.DataHeader, fd.DataBody)
	if rec == nil || err != nil {
		return nil, err
	}
	defer rec.Release()
	if n := rec.NumRows(); n > router.MaxLookupKeys {
		return nil, errs.New(errs.TooLarge, "a lookup has at most %d keys, this batch has %d", router.MaxLookupKeys, n)
	}
	rows, err := x.plan.Conform(rec)
	if err != nil {
		return nil, err
	}
	defer rows.Release()
	keys := row.Project(rows.Record, x.keys)
	defer keys.Release()
	x.s.metrics.lookupAsks.Inc()
	if _, err := x.s.o.Catalog.TableByID(ctx, x.table.ID); err != nil {
		return nil, err // of a table that is gone nothing would be found
	}
	res, err := x.lookups.Next(ctx, keys)
	if err != nil {
		return nil, err
	}
	defer res.Record.Release()
	out := x.withFound(res)
	defer out.Release()
	m, err := segment.EncodeMessage(out, segment.None)
	if err != nil {
		return nil, err
	}
	return messageFrame(m, fd.AppMetadata), nil
}

// withFound puts _found in front of the rows.
func (x *exchange) withFound(res *router.LookupResult) arrow.RecordBatch {
	b := array.NewBooleanBuilder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues(res.Found, nil)
	found := b.NewArray()
	defer found.Release()
	return array.NewRecordBatch(x.schema, append([]arrow.Array{found}, res.Record.Columns()...), int64(len(res.Found)))
}
