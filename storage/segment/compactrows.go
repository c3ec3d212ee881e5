package segment

import "github.com/millrace/millrace/errs"

// CompactRows returns the rows of a row payload as they are held, in order. They
// point into the payload and must not be changed.
func (p *Payload) CompactRows() ([][]byte, error) {
	if p.head.encoding != Rows {
		return nil, errs.New(errs.CorruptData, "a payload of %s where rows were expected", p.head.encoding)
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
		end := int(le.Uint32(ends[4*i:]))
		if end < from || end > len(rows) {
			return nil, p.corrupt(p.head.metaLen, "row %d ends at byte %d of %d", i, end, len(rows))
		}
		out[i] = rows[from:end:end]
		from = end
	}
	return out, nil
}
