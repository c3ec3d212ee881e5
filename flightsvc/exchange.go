package flightsvc

import (
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/row/arrowrow"
	"github.com/millrace/millrace/storage/segment"
)

// asked is what a DoExchange answers, and with which columns.
type asked struct {
	table   *millrace.Table
	columns []millrace.Column // of the table
	schema  *arrow.Schema     // of the answers: a column about the question, then these, nullable
}

// ask resolves the table and columns of a DoExchange.
func (s *Service) ask(ctx context.Context, cmd *command) (*asked, error) {
	var id *millrace.TableID
	var names []string
	about := foundColumn
	switch cmd.op {
	case opLookup:
		id, names = cmd.lookup.TableID, cmd.lookup.Columns
	case opPrefixLookup:
		id, names, about = cmd.prefix.TableID, cmd.prefix.Columns, keyIndexColumn
	default:
		return nil, errs.New(errs.InvalidValue, `a DoExchange has a command, {"op":"lookup","table":"database.table","columns":["a"]}, or with "op":"prefix_lookup"`)
	}
	if _, suffix := router.SplitVirtual(cmd.path); suffix != "" {
		return nil, errs.New(errs.InvalidValue, "a lookup reads the current rows of the table itself, not %q", clipText(cmd.path, 64))
	}
	t, err := s.o.Router.Table(ctx, cmd.path, id)
	if err != nil {
		return nil, err
	}
	if err := router.CheckLookup(t); err != nil {
		return nil, err
	}
	cols, err := router.LookupColumns(t, names)
	if err != nil {
		return nil, err
	}
	out := append(make([]millrace.Column, 0, 1+len(cols)), about)
	for _, c := range cols {
		c.Nullable = true
		out = append(out, c)
	}
	return &asked{table: t, columns: cols, schema: row.TableArrowSchema(t, out)}, nil
}

// answerer answers batches of keys or prefixes, conformed to the table's types.
type answerer interface {
	Still() error
	answer(ctx context.Context, rows row.Rows) (arrow.RecordBatch, error)
}

// DoExchange answers each batch of keys with a batch of rows, in the order of the
// keys, or of prefixes. Nothing but the lookup stands between a request and its answer.
func (s *Service) DoExchange(stream flight.FlightService_DoExchangeServer) error {
	ctx := stream.Context()
	c := callOf(ctx)
	cmd, first, err := c.receiveOpening(stream)
	if err != nil {
		return err
	}
	closed, err := s.openStream(ctx)
	if err != nil {
		return err
	}
	defer closed()
	ctx = streamed(ctx)
	x := &exchange{s: s}
	if x.asked, err = s.ask(ctx, cmd); err != nil {
		return err
	}
	if cmd.op == opLookup {
		err = x.openLookup(ctx, cmd, first)
	} else {
		err = x.openPrefixLookup(ctx, cmd, first)
	}
	if err != nil {
		return err
	}
	if err := stream.SendMsg(schemaFrame(x.schema)); err != nil {
		return err
	}
	still := x.by.Still
	c.still.Store(&still)
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
	*asked
	s       *Service
	decoder *arrowrow.Decoder
	plan    *arrowrow.Plan
	by      answerer
	inserts bool // rows of keys that are absent
}

// match matches the columns of a stream with those of the primary key, all of which
// must be there, or some.
func (x *exchange) match(first *flight.FlightData, some bool) (err error) {
	if x.decoder, err = openDecoder(first); err != nil {
		return err
	}
	t := x.table
	must := t.Names(t.PrimaryKey)
	if some {
		must = slices.DeleteFunc(must, func(name string) bool { return !x.decoder.Schema().HasField(name) })
	}
	if x.plan, err = arrowrow.NewPlan(x.decoder.Schema(), t.Schema.Columns, arrowrow.Options{Key: must, KeyOnly: true}); err != nil {
		return err
	}
	for _, c := range x.plan.Columns() {
		if t.Schema.IndexID(c.ID) >= 0 && !slices.Contains(t.PrimaryKey, c.ID) {
			return errs.New(errs.UnknownColumn, "keys have the columns of the primary key (%v) and no others, not %q", t.Names(t.PrimaryKey), c.Name)
		}
	}
	return nil
}

// answer answers a batch; nil when the message has none.
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
	x.s.metrics.lookupAsks.Inc()
	if err := x.s.o.Router.WaitRead(ctx, x.by); err != nil {
		return nil, err
	}
	if x.inserts {
		if err := x.s.waitWrite(ctx); err != nil {
			return nil, err
		}
	}
	if _, err := x.s.o.Catalog.TableByID(ctx, x.table.ID); err != nil {
		return nil, err // of a table that is gone nothing would be found
	}
	out, err := x.by.answer(ctx, rows)
	if err != nil {
		return nil, err
	}
	defer out.Release()
	m, err := segment.EncodeMessage(out, segment.None)
	if err != nil {
		return nil, err
	}
	return messageFrame(m, fd.AppMetadata), nil
}
