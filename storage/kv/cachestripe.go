package kv

import (
	"bytes"
	"encoding/binary"
	"sync"
	"sync/atomic"
)

const (
	// Rows lie one after the other in chunks, and a whole chunk is forgotten at once,
	// but for what was asked for since it came.
	cacheChunkBytes = 64 << 10
	// What the index of a chunk takes, as a part of it, when rows have about 100 bytes.
	cacheIndexShare = 4
	// Longer ones, with their key, are not held.
	maxCachedBytes = cacheChunkBytes / 4
	// The most of a chunk that outlives it.
	maxSurvivingBytes = cacheChunkBytes / 2
)

// An entry of a chunk: hash u64 · length of the key u16 · length of the row u16, or
// absentRow · 1 when it was asked for since it came, u8 · key · row.
const (
	cacheEntryHeader = 13
	absentRow        = 1<<16 - 1
)

// cacheStripe is a part of a cache with a lock of its own. It holds no pointers but
// to its chunks, so that the collector has nothing to walk.
type cacheStripe struct {
	mu      sync.Mutex
	at      map[uint64]cachePlace // by hash
	chunks  [][]byte              // filled in turn
	cur     int                   // the one that is being filled
	most    int                   // chunks
	spare   []byte
	version uint64 // how often it forgot something
}

// cachePlace is chunk<<16 | position.
type cachePlace uint32

func (p cachePlace) chunk() int { return int(p >> 16) }
func (p cachePlace) pos() int   { return int(p & (1<<16 - 1)) }

func placeOf(chunk, pos int) cachePlace { return cachePlace(chunk<<16 | pos) }

func (s *cacheStripe) init(chunks int) {
	s.at, s.most = map[uint64]cachePlace{}, min(max(1, chunks-1), 1<<16) // one is the spare
}

// cacheEntry is an entry as it lies in a chunk.
type cacheEntry []byte

func (e cacheEntry) hash() uint64 { return binary.LittleEndian.Uint64(e) }
func (e cacheEntry) keyLen() int  { return int(binary.LittleEndian.Uint16(e[8:])) }
func (e cacheEntry) key() []byte  { return e[cacheEntryHeader:][:e.keyLen()] }
func (e cacheEntry) absent() bool { return binary.LittleEndian.Uint16(e[10:]) == absentRow }
func (e cacheEntry) asked() bool  { return e[12] != 0 }
func (e cacheEntry) row() []byte  { return e[cacheEntryHeader+e.keyLen():][:e.rowLen()] }
func (e cacheEntry) len() int     { return cacheEntryHeader + e.keyLen() + e.rowLen() }

func (e cacheEntry) rowLen() int {
	if e.absent() {
		return 0
	}
	return int(binary.LittleEndian.Uint16(e[10:]))
}

// find is the entry of a key; nil when there is none.
func (s *cacheStripe) find(hash uint64, key []byte) cacheEntry {
	p, ok := s.at[hash]
	if !ok {
		return nil
	}
	e := cacheEntry(s.chunks[p.chunk()][p.pos():])
	if !bytes.Equal(e.key(), key) {
		return nil
	}
	return e
}

// get gives a copy of the row with a key, nil when there is none; ok says whether
// that is known.
func (s *cacheStripe) get(hash uint64, key []byte, copies *slab) (row []byte, version uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(hash, key)
	if e == nil {
		return nil, s.version, false
	}
	e[12] = 1
	return copyOf(e, copies), s.version, true
}

func copyOf(e cacheEntry, copies *slab) []byte {
	if e.absent() {
		return nil
	}
	return copies.copy(e.row())
}

// settle is rowCache.settle.
func (s *cacheStripe) settle(m missedKey, key, row []byte, copies *slab, committing *atomic.Int64) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.find(m.hash, key); e != nil {
		return copyOf(e, copies)
	}
	if s.version == m.version && committing.Load() == 0 && fits(len(key), len(row)) {
		s.add(m.hash, key, row, false)
	}
	return row
}

// put replaces what is held for a key.
func (s *cacheStripe) put(hash uint64, key, row []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(hash, key)
	switch {
	case !fits(len(key), len(row)):
		delete(s.at, hash)
		s.version++
	case e != nil && row != nil && !e.absent() && e.rowLen() == len(row):
		copy(e.row(), row)
	default:
		s.add(hash, key, row, e != nil && e.asked())
	}
}

// clear forgets everything.
func (s *cacheStripe) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.at)
	for i := range s.chunks {
		s.chunks[i] = s.chunks[i][:0]
	}
	s.cur = 0
	s.version++
}

func fits(key, row int) bool { return cacheEntryHeader+key+row <= maxCachedBytes }

// add appends an entry, in place of what is held for its hash.
func (s *cacheStripe) add(hash uint64, key, row []byte, asked bool) {
	n := cacheEntryHeader + len(key) + len(row)
	for len(s.chunks) == 0 || len(s.chunks[s.cur])+n > cacheChunkBytes {
		s.turn()
	}
	if _, ok := s.at[hash]; ok && s.find(hash, key) == nil {
		s.version++ // another key with this hash is forgotten
	}
	c := s.chunks[s.cur]
	s.at[hash] = placeOf(s.cur, len(c))
	c = binary.LittleEndian.AppendUint64(c, hash)
	c = binary.LittleEndian.AppendUint16(c, uint16(len(key)))
	if row == nil {
		c = binary.LittleEndian.AppendUint16(c, absentRow)
	} else {
		c = binary.LittleEndian.AppendUint16(c, uint16(len(row)))
	}
	if asked {
		c = append(c, 1)
	} else {
		c = append(c, 0)
	}
	s.chunks[s.cur] = append(append(c, key...), row...)
}

// turn begins a chunk: another one while there may be more, then in place of the
// oldest, of which what was asked for stays.
func (s *cacheStripe) turn() {
	if len(s.chunks) > 0 && s.cur+1 < len(s.chunks) && len(s.chunks[s.cur+1]) == 0 {
		s.cur++ // it is empty since everything was forgotten
		return
	}
	if len(s.chunks) < s.most {
		s.cur = len(s.chunks)
		s.chunks = append(s.chunks, make([]byte, 0, cacheChunkBytes))
		return
	}
	s.version++
	s.cur = (s.cur + 1) % len(s.chunks)
	old, fresh := s.chunks[s.cur], s.spare[:0]
	if fresh == nil {
		fresh = make([]byte, 0, cacheChunkBytes)
	}
	for pos := 0; pos < len(old); {
		e := cacheEntry(old[pos:])
		n, hash := e.len(), e.hash()
		if p, ok := s.at[hash]; ok && p == placeOf(s.cur, pos) {
			if e.asked() && len(fresh)+n <= maxSurvivingBytes {
				e[12] = 0
				s.at[hash] = placeOf(s.cur, len(fresh))
				fresh = append(fresh, e[:n]...)
			} else {
				delete(s.at, hash)
			}
		}
		pos += n
	}
	s.chunks[s.cur], s.spare = fresh, old
}
