package segment

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

// ReadBatch reads a batch as it is stored, header and payload, and compares it with its
// checksums. The payload is the caller's.
func (f *File) ReadBatch(ref BatchRef) (BatchHeader, []byte, error) {
	var h BatchHeader
	var payload []byte
	b := make([]byte, ref.Length)
	err := f.readChecked(b, ref.Position, func(b []byte) error {
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
	return h, payload, err
}
