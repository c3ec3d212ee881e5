package filter

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// sieve answers "not in the set" for most of what is not, from one bit: it has 16
// or more bits an element, set at the top bits of the elements' hashes. Most rows
// fail an IN, so this is the one branch that a processor can foresee.
//
// A hash is a product with a random odd number, so that nobody can write an IN
// list that collides.
type sieve struct {
	bits  []uint64
	mul   uint64
	shift uint
}

func newSieve(elements int) sieve {
	size := max(bits.Len(uint(16*elements-1)), 6)
	return sieve{bits: make([]uint64, 1<<(size-6)), mul: rand.Uint64() | 1, shift: uint(64 - size)}
}

func (s *sieve) add(hash uint64) {
	at := hash >> s.shift
	s.bits[at>>6] |= 1 << (at & 63)
}

func (s *sieve) hash(k int64) uint64 { return uint64(k) * s.mul }

func (s *sieve) maybe(hash uint64) bool {
	at := hash >> s.shift
	return s.bits[at>>6]>>(at&63)&1 != 0
}

// keyTable is a hash set of keys: open addressing, at most half full, behind a
// sieve.
type keyTable struct {
	sieve
	slots []int64
	empty int64 // what an empty slot holds: a key that is not in the set
	shift uint
}

// newKeyTable makes a table of keys, which are rising and distinct.
func newKeyTable(keys []int64) *keyTable {
	size := bits.Len(uint(2*len(keys) - 1))
	t := &keyTable{sieve: newSieve(len(keys)), slots: make([]int64, 1<<size), shift: uint(64 - size)}
	for _, k := range keys { // rising, so one pass finds a gap from 0 up
		if k == t.empty {
			t.empty++
		}
	}
	for i := range t.slots {
		t.slots[i] = t.empty
	}
	for _, k := range keys {
		h := t.hash(k)
		t.add(h)
		at := h >> t.shift
		for t.slots[at] != t.empty {
			at = (at + 1) & uint64(len(t.slots)-1)
		}
		t.slots[at] = k
	}
	return t
}

func (t *keyTable) has(k int64, hash uint64) bool {
	for at := hash >> t.shift; ; at++ {
		s := t.slots[at&uint64(len(t.slots)-1)]
		if s == t.empty {
			return false
		}
		if s == k {
			return true
		}
	}
}

// byteTable is a set of byte strings behind a sieve.
type byteTable struct {
	sieve
	set map[string]struct{}
}

func newByteTable(set map[string]struct{}) *byteTable {
	t := &byteTable{sieve: newSieve(len(set)), set: set}
	for s := range set {
		t.add(t.hash(tail([]byte(s))))
	}
	return t
}

func (t *byteTable) has(s []byte) bool {
	if !t.maybe(t.hash(tail(s))) {
		return false
	}
	_, in := t.set[string(s)]
	return in
}

// tail is the last eight bytes of s. Texts that differ mostly do so there:
// what begins alike is numbered at the end.
func tail(s []byte) int64 {
	if len(s) < 8 {
		return shortTail(s)
	}
	return int64(binary.LittleEndian.Uint64(s[len(s)-8:]))
}

func shortTail(s []byte) int64 {
	v := int64(len(s))
	for _, c := range s {
		v = v<<8 | int64(c)
	}
	return v
}
