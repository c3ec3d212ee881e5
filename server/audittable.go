package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/auth/audit"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
)

// auditColumn is a column of the table of the audit log.
type auditColumn struct {
	name, sql string
	of        func(*audit.Event) string
}

// auditColumns are those of the table of the audit log, with what of an event is in them.
// The first is its time.
var auditColumns = []auditColumn{
	{"time", "TIMESTAMP_LTZ(6)", nil},
	{"request_id", "STRING", func(e *audit.Event) string { return e.RequestID }},
	{"principal", "STRING", func(e *audit.Event) string { return e.Principal }},
	{"address", "STRING", func(e *audit.Event) string { return e.Address }},
	{"door", "STRING", func(e *audit.Event) string { return e.Door }},
	{"operation", "STRING", func(e *audit.Event) string { return e.Operation }},
	{"verb", "STRING", func(e *audit.Event) string { return e.Verb }},
	{"object", "STRING", func(e *audit.Event) string { return e.Object }},
	{"decision", "STRING", func(e *audit.Event) string { return e.Decision }},
	{"outcome", "STRING", func(e *audit.Event) string { return e.Outcome }},
}

// auditTable writes events into a table, as the service itself, which no record is kept of.
type auditTable struct {
	s    *Server
	path millrace.TablePath
	// writer numbers its batches, so that one that is tried again is not written twice.
	writer string
}

// openAuditTable makes the table of the audit log, or sees that it can take events.
func (s *Server) openAuditTable(ctx context.Context) error {
	if s.settings.AuditTable == "" {
		return nil
	}
	path, err := millrace.ParseTablePath(s.settings.AuditTable)
	if err != nil {
		return wrong("audit-table", "%v", err)
	}
	a := &auditTable{s: s, path: path, writer: "audit-" + draw(8)}
	if _, err := a.table(ctx); err != nil {
		return wrong("audit-table", "%v", err)
	}
	stop := s.audit.Feed(a.write)
	s.onStop("table of the audit log", func(context.Context) error { stop(); return nil })
	return nil
}

// table is the table, which is made when it is not there.
func (a *auditTable) table(ctx context.Context) (*millrace.Table, error) {
	t, err := a.s.catalog.Table(ctx, a.path)
	if errs.Is(err, errs.DatabaseNotFound) {
		if _, err := a.s.catalog.CreateDatabase(ctx, a.path.Database, ""); err != nil && !errs.Is(err, errs.DatabaseAlreadyExists) {
			return nil, err
		}
	}
	if errs.Is(err, errs.DatabaseNotFound) || errs.Is(err, errs.TableNotFound) {
		spec := catalog.Spec{Name: a.path.Table, Comment: "The audit log.", Properties: map[string]string{"table.log.ttl": "0"}}
		for _, c := range auditColumns {
			spec.Columns = append(spec.Columns, catalog.ColumnSpec{Name: c.name, Type: c.sql})
		}
		t, _, err = a.s.catalog.CreateTable(ctx, a.path.Database, spec, true)
	}
	if err != nil {
		return nil, err
	}
	return t, checkAuditTable(t)
}

// checkAuditTable says what keeps a table from taking events. Columns of its own it may have,
// which are NULL.
func checkAuditTable(t *millrace.Table) error {
	if t.Keyed() || t.Partitioned() {
		return fmt.Errorf("table %s has a primary key or partitions; the audit log needs a plain log table: name another one, which is made", t.Path)
	}
	for _, c := range auditColumns {
		i := t.Schema.Index(c.name)
		if i < 0 {
			return fmt.Errorf("table %s has no column %q of type %s, as the audit log needs: name another table, which is made", t.Path, c.name, c.sql)
		}
		if is := t.Schema.Columns[i].Type.String(); is != c.sql {
			return fmt.Errorf("column %q of table %s has the type %s, and the audit log needs %s: name another table, which is made", c.name, t.Path, is, c.sql)
		}
	}
	for _, c := range t.Schema.Columns {
		if !c.Nullable && !slices.ContainsFunc(auditColumns, func(of auditColumn) bool { return of.name == c.Name }) {
			return fmt.Errorf("column %q of table %s is not of the audit log, and NOT NULL: name another table, which is made", c.Name, t.Path)
		}
	}
	return nil
}

// write is an audit.Sink.
func (a *auditTable) write(ctx context.Context, number uint64, events []audit.Event) error {
	ctx = auth.With(ctx, auth.System)
	t, err := a.table(ctx)
	if err != nil {
		return err
	}
	rec := auditBatch(t, events)
	defer rec.Release()
	_, err = a.s.router.Write(ctx, &router.WriteRequest{
		Table: t, Mode: router.Append, Rows: row.Rows{Record: rec, Columns: t.Schema.Columns}, Writer: &router.WriterSequence{ID: a.writer, Seq: number},
	})
	return err
}

// auditBatch is events as rows of a table.
func auditBatch(t *millrace.Table, events []audit.Event) arrow.RecordBatch {
	mem := memory.DefaultAllocator
	cols := make([]arrow.Array, len(t.Schema.Columns))
	for i, c := range t.Schema.Columns {
		at := slices.IndexFunc(auditColumns, func(of auditColumn) bool { return of.name == c.Name })
		switch {
		case at < 0:
			cols[i] = array.MakeArrayOfNull(mem, row.ArrowType(c.Type), len(events))
		case auditColumns[at].of == nil:
			b := array.NewTimestampBuilder(mem, &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"})
			for j := range events {
				b.Append(arrow.Timestamp(events[j].Time.UnixMicro()))
			}
			cols[i] = b.NewArray()
		default:
			b := array.NewStringBuilder(mem)
			for j := range events {
				b.Append(strings.ToValidUTF8(auditColumns[at].of(&events[j]), "\uFFFD"))
			}
			cols[i] = b.NewArray()
		}
	}
	rec := array.NewRecordBatch(row.ArrowSchema(t.Schema.Columns), cols, int64(len(events)))
	for _, c := range cols {
		c.Release()
	}
	return rec
}
