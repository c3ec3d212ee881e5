package segment

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

// Merge appends to dst one columnar payload with the rows of all parts, in
// order, in the schema to: sealing makes columns of many small batches. It fails
// with errs.TooLarge when that is too much for one payload.
func Merge(dst []byte, mem memory.Allocator, schemas Schemas, to *millrace.Schema, parts []*Payload, o EncodeOptions) ([]byte, error) {
	rec, changes, err := Concat(mem, schemas, to.Columns, parts)
	if err != nil {
		return dst, err
	}
	defer rec.Release()
	if o.Codec == None {
		dst = slices.Grow(dst, mostBytes(to, rec))
	}
	return AppendColumns(dst, to, rec, changes, o)
}

// Concat decodes the wanted columns of all parts, in order, into one record,
// which the caller releases; with one change type a row, or nil when all are +I.
// Neighbouring row payloads are read together, which costs much less than a
// record of each.
func Concat(mem memory.Allocator, schemas Schemas, want []millrace.Column, parts []*Payload) (arrow.RecordBatch, []millrace.ChangeType, error) {
	m := merger{mem: mem, schemas: schemas, want: want}
	defer m.release()
	for _, p := range parts {
		if err := m.add(p); err != nil {
			return nil, nil, err
		}
	}
	rec, err := m.record()
	return rec, m.changes, err
}

type merger struct {
	mem     memory.Allocator
	schemas Schemas
	want    []millrace.Column
	rows    int
	changes []millrace.ChangeType // nil until one is not +I
	records []arrow.RecordBatch
	// reader takes the rows of neighbouring row payloads together.
	reader *row.Reader
}

func (m *merger) add(p *Payload) error {
	changes, err := p.Changes()
	if err != nil {
		return err
	}
	if changes != nil && m.changes == nil {
		m.changes = make([]millrace.ChangeType, m.rows, m.rows+len(changes)) // zero is +I
	}
	m.rows += p.Rows()
	if m.changes != nil {
		m.changes = slices.Grow(m.changes, p.Rows())
		if changes != nil {
			m.changes = append(m.changes, changes...)
		} else {
			m.changes = append(m.changes, make([]millrace.ChangeType, p.Rows())...)
		}
	}
	if p.Encoding() == Rows {
		if m.reader == nil {
			m.reader = row.NewReader(m.mem, m.schemas, m.want)
		}
		return p.appendTo(m.reader)
	}
	m.flush()
	rec, err := p.Record(m.mem, m.schemas, m.want)
	if err == nil {
		m.records = append(m.records, rec)
	}
	return err
}

// flush turns the rows that were read so far into a record.
func (m *merger) flush() {
	if m.reader != nil && m.reader.Len() > 0 {
		m.records = append(m.records, m.reader.Record())
	}
}

// record is all rows; the caller releases it.
func (m *merger) record() (arrow.RecordBatch, error) {
	m.flush()
	if len(m.records) == 1 {
		m.records[0].Retain()
		return m.records[0], nil
	}
	schema := row.ArrowSchema(m.want)
	columns := make([]arrow.Array, len(m.want))
	defer func() {
		for _, c := range columns {
			if c != nil {
				c.Release()
			}
		}
	}()
	parts := make([]arrow.Array, len(m.records))
	for i := range columns {
		if len(parts) == 0 {
			columns[i] = array.MakeArrayOfNull(m.mem, schema.Field(i).Type, 0)
			continue
		}
		for k, r := range m.records {
			parts[k] = r.Column(i)
		}
		var err error
		if columns[i], err = array.Concatenate(parts, m.mem); err != nil {
			// The types are the same; what is left is more than int32 offsets reach.
			return nil, errs.Wrap(errs.TooLarge, "segment.Merge", err)
		}
	}
	return array.NewRecordBatch(schema, columns, int64(m.rows)), nil
}

func (m *merger) release() {
	for _, r := range m.records {
		r.Release()
	}
	if m.reader != nil {
		m.reader.Close()
	}
}
