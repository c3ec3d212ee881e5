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
	return p.sound(data, payloadHeader, func(b []byte) error {
		if got := crcOf(b); got != p.head.dataCRC {
			return p.corrupt(payloadHeader, "the rows do not match their checksum (%08x, not %08x)", got, p.head.dataCRC)
		}
		return nil
	})
}

// CompactRows returns the rows of a row payload as they are held, in order. They
// point into the payload and must not be changed.
func (p *Payload) CompactRows() ([][]byte, error) {
	if p.head.encoding != Rows {
		return nil, p.corrupt(0, "a payload of %s where rows belong", p.head.encoding)
	}
	data, err := p.rowData()
	if err != nil {
		return nil, err
	}
	ends := data[p.head.changesLen():]
	rows := ends[4*p.head.rows:]
	out := make([][]byte, p.head.rows)
	from := 0
	for i := range out {
		to := int(le.Uint32(ends[4*i:]))
		if to < from || to > len(rows) {
			return nil, p.corrupt(payloadHeader, "row %d ends at byte %d of %d", i, to, len(rows))
		}
		out[i] = rows[from:to:to]
		from = to
	}
	if from != len(rows) {
		return nil, p.corrupt(payloadHeader, "%d bytes behind the last row", len(rows)-from)
	}
	return out, nil
}

// appendTo appends the payload's rows to a row reader.
func (p *Payload) appendTo(r *row.Reader) error {
	rows, err := p.CompactRows()
	if err != nil {
		return err
	}
	for _, b := range rows {
		if err := r.Append(b); err != nil {
			if errs.Is(err, errs.CorruptData) {
				return p.locate(err, payloadHeader)
			}
			return err
		}
	}
	return nil
}

func (p *Payload) recordOfRows(mem memory.Allocator, schemas Schemas, want []millrace.Column) (arrow.RecordBatch, error) {
	r := row.NewReader(mem, schemas, want)
	defer r.Close()
	if err := p.appendTo(r); err != nil {
		return nil, err
	}
	return r.Record(), nil
}
