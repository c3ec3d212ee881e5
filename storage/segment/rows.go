package segment

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

// The data of a payload of rows: the change types, when there are any; where each
// row ends, as u32 from the first row on; the rows.

// rowData reads and checks what follows the meta part.
func (p *Payload) rowData() ([]byte, error) {
	n := int(p.head.size) - payloadHeader
	var data []byte
	if p.whole != nil {
		data = p.view(payloadHeader, n)
	} else {
		data = make([]byte, n)
		if err := p.readAt(data, payloadHeader); err != nil {
			return nil, err
		}
	}
	if got := crcOf(data); got != p.head.dataCRC {
		return nil, p.corrupt(payloadHeader, "the rows do not match their checksum (%08x, not %08x)", got, p.head.dataCRC)
	}
	return data, nil
}

// EachRow calls fn with the bytes of each compact row, in order, until fn returns
// an error. The bytes belong to the payload and may be kept.
// REQUIRES: Encoding is Rows.
func (p *Payload) EachRow(fn func(row []byte) error) error {
	if p.head.encoding != Rows {
		panic("segment: EachRow of columns")
	}
	data, err := p.rowData()
	if err != nil {
		return err
	}
	ends := data[p.head.changesLen():]
	rows := ends[4*p.head.rows:]
	from := 0
	for i := range p.head.rows {
		to := int(le.Uint32(ends[4*i:]))
		if to < from || to > len(rows) {
			return p.corrupt(payloadHeader, "row %d ends at byte %d of %d", i, to, len(rows))
		}
		if err := fn(rows[from:to:to]); err != nil {
			return err
		}
		from = to
	}
	if from != len(rows) {
		return p.corrupt(payloadHeader, "%d bytes behind the last row", len(rows)-from)
	}
	return nil
}

// appendTo appends the payload's rows to a row reader.
func (p *Payload) appendTo(r *row.Reader) error {
	return p.EachRow(func(b []byte) error {
		err := r.Append(b)
		if errs.Is(err, errs.CorruptData) {
			return p.locate(err, payloadHeader)
		}
		return err
	})
}

func (p *Payload) recordOfRows(mem memory.Allocator, schemas Schemas, want []millrace.Column) (arrow.RecordBatch, error) {
	r := row.NewReader(mem, schemas, want)
	defer r.Close()
	if err := p.appendTo(r); err != nil {
		return nil, err
	}
	return r.Record(), nil
}
