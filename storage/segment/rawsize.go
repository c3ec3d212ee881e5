package segment

// RawBytes is about what the rows take when they are not compressed. It is told of
// payloads in memory; of one in a file it is the stored length.
func (p *Payload) RawBytes() int64 {
	if p.head.encoding != Columns || p.whole == nil {
		return p.head.size
	}
	total := int64(p.head.metaLen)
	for i := range p.head.columns {
		e := entryAt(p.meta, i)
		pos := e.pos
		for n := range e.buffers {
			size := e.buffer(p.meta, n)
			// A length that makes no sense is found when the buffer is read.
			if raw, err := rawLen(p.whole[pos:pos+size], p.head.codec); err == nil {
				total += int64(raw)
			}
			pos += ceil(size, bufferAlign)
		}
	}
	return total
}
