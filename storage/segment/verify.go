package segment

import "io"

// Verify compares everything in the payload with its checksums.
func (p *Payload) Verify() error {
	if p.head.encoding == Rows {
		_, err := p.rowData()
		return err
	}
	if _, err := p.Changes(); err != nil {
		return err
	}
	for i := range p.head.columns {
		e := entryAt(p.meta, i)
		b := make([]byte, e.len)
		if err := p.readAt(b, e.pos); err != nil {
			return err
		}
		if _, err := p.run(b, i, 1); err != nil {
			return err
		}
	}
	return nil
}

// WriteSealed writes the file as it is when it is sealed, and compares all of it with
// its checksums on the way.
// REQUIRES: no Writer appends to the file.
func (f *File) WriteSealed(w io.Writer) error {
	head := make([]byte, fileHeader)
	if err := f.readChecked(head, 0, func(b []byte) error { return f.locate(checkFileHeader(b, f.id), 0) }); err != nil {
		return err
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	pos := int64(fileHeader)
	batches := f.Batches()
	for _, ref := range batches {
		raw, _, _, err := f.readBatch(ref)
		if err != nil {
			return err
		}
		if _, err := w.Write(raw); err != nil {
			return err
		}
		pos += ref.Length
	}
	_, err := w.Write(appendIndex(nil, pos, batches, f.End()))
	return err
}

// ReadBatch reads a batch as it is stored, header and payload, and compares it with its
// checksums. The payload is the caller's.
func (f *File) ReadBatch(ref BatchRef) (BatchHeader, []byte, error) {
	_, h, payload, err := f.readBatch(ref)
	return h, payload, err
}

func (f *File) readBatch(ref BatchRef) (raw []byte, h BatchHeader, payload []byte, err error) {
	b := make([]byte, ref.Length)
	err = f.readChecked(b, ref.Position, func(b []byte) error {
		head, p, err := f.parseBatch(ref, b)
		if err != nil {
			return err
		}
		start := ceil(ref.HeaderLen, chunkAlign)
		h, payload = head, b[start:][:p.Size()]
		whole, err := OpenBytes(payload)
		if err != nil {
			return f.locate(err, ref.Position+int64(start))
		}
		return f.locate(whole.Verify(), ref.Position+int64(start))
	})
	return b, h, payload, err
}
