package kv

// Load is what stores have at a moment.
type Load struct {
	DiskBytes, MemTableBytes uint64
	CompactionDebt           uint64
	ReadAmplification        int // the highest of them
	RowCacheBytes            int64
}

// AddLoad adds what the store has. It may hang when Pebble does.
// REQUIRES: the store is not closed.
func (s *Store) AddLoad(l *Load) {
	m := s.db.Metrics()
	l.DiskBytes += m.DiskSpaceUsage()
	l.MemTableBytes += m.MemTable.Size
	l.CompactionDebt += m.Compact.EstimatedDebt
	l.ReadAmplification = max(l.ReadAmplification, m.ReadAmp())
	if s.cache != nil {
		l.RowCacheBytes += s.cache.bytes()
	}
}

// bytes is how much of its memory a cache has taken so far.
func (c *rowCache) bytes() int64 {
	var n int64
	for i := range c.stripes {
		st := &c.stripes[i]
		st.mu.Lock()
		n += int64(len(st.chunks)) * cacheChunkBytes
		st.mu.Unlock()
	}
	return n
}
