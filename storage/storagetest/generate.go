package storagetest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Generator makes random writes to tables of the columns of LogColumns and
// KeyedColumns.
type Generator struct {
	Rng *rand.Rand
	// Keys is about how many primary keys there are in a bucket: few, so that
	// writes meet.
	Keys int
	// Large is how many of 1,000 writes are large.
	Large int
	next  int64
}

// LogColumns are the columns of the log tables that a Generator writes to.
var LogColumns = []string{"id BIGINT NOT NULL", "s STRING", "x DOUBLE", "n INT", "b BOOLEAN"}

// KeyedColumns are those of its keyed tables; the first two are the key.
var KeyedColumns = []string{"k1 BIGINT NOT NULL", "k2 STRING NOT NULL", "n INT", "s STRING", "x DOUBLE"}

// Write makes a write to a bucket of the table, without a writer.
func (g *Generator) Write(t *Table, bucket uint16) *Write {
	w := &Write{Bucket: bucket}
	n := 1
	switch r := g.Rng.IntN(1000); {
	case r < g.Large:
		n = 500 + g.Rng.IntN(3000)
	case r < 400:
	case r < 900:
		n = 1 + g.Rng.IntN(12)
	default:
		n = 1 + g.Rng.IntN(120)
	}
	for range n {
		w.Rows = append(w.Rows, g.Row(t))
	}
	if !t.Keyed {
		return w
	}
	if t.Schema.AutoIncrement() >= 0 {
		for range w.Rows {
			g.next++
			w.IDs = append(w.IDs, g.next)
		}
	}
	if g.Rng.IntN(3) == 0 {
		w.Set = make([]bool, len(t.Schema.Columns))
		for i := range w.Set {
			w.Set[i] = t.inKey(i) || g.Rng.IntN(2) == 0
		}
	}
	switch g.Rng.IntN(4) {
	case 0: // all
		w.Deletes = make([]bool, n)
		for i := range w.Deletes {
			w.Deletes[i] = true
		}
	case 1: // some
		w.Deletes, w.Absent = make([]bool, n), make([]bool, n)
		for i := range w.Deletes {
			w.Deletes[i] = g.Rng.IntN(3) == 0
			w.Absent[i] = !w.Deletes[i] && g.Rng.IntN(4) == 0
		}
	}
	return w
}

// Row makes a row.
func (g *Generator) Row(t *Table) Row {
	if !t.Keyed {
		g.next++
		return Row{g.next, g.text(), g.double(), g.int(), g.bool()}
	}
	k := g.Rng.IntN(g.Keys)
	r := Row{int64(k/3 - 5), fmt.Sprintf("k%c", 'a'+k%3)}
	for _, c := range t.Schema.Columns[2:] {
		r = append(r, g.value(t, c))
	}
	return r
}

func (g *Generator) null() bool { return g.Rng.IntN(4) == 0 }

func (g *Generator) text() any {
	switch {
	case g.null():
		return nil
	case g.Rng.IntN(200) == 0:
		return strings.Repeat(fmt.Sprint(g.Rng.IntN(1000)), 1+g.Rng.IntN(8000))
	}
	return strings.Repeat("x", g.Rng.IntN(6)) + fmt.Sprint(g.Rng.IntN(1000))
}

func (g *Generator) double() any {
	if g.null() {
		return nil
	}
	return float64(g.Rng.IntN(100)) / 4
}

func (g *Generator) int() any {
	if g.null() {
		return nil
	}
	return int32(g.Rng.IntN(10))
}

func (g *Generator) bool() any {
	if g.null() {
		return nil
	}
	return g.Rng.IntN(2) == 0
}

// Number gives a write a writer's number: mostly the next one or one a little
// above, sometimes one that was taken, left out or long forgotten, sometimes
// another epoch. Some writers are keys, of which sometimes another body comes.
func (g *Generator) Number(w *Write, b *Bucket) {
	s := &Sequence{Writer: fmt.Sprintf("writer-%d", g.Rng.IntN(3))}
	key := g.Rng.IntN(3) == 0
	if key {
		s.Writer = fmt.Sprintf("key-%d", g.Rng.IntN(2))
	}
	s.Epoch = b.epoch(s.Writer)
	last := b.LastSeq(s.Writer)
	switch r := g.Rng.IntN(20); {
	case r < 11:
		s.Seq = last + 1
	case r < 14:
		s.Seq = last + 2 + uint64(g.Rng.IntN(5))
	case r < 18:
		s.Seq = max(1, last-min(last, uint64(g.Rng.IntN(40))))
	default:
		s.Seq = max(1, last-min(last, uint64(g.Rng.IntN(300))))
	}
	switch r := g.Rng.IntN(20); {
	case key:
		s.Hash = s.Seq
		if r == 0 {
			s.Hash++
		}
	case r == 0:
		s.Epoch++
	case r == 1 && s.Epoch > 0:
		s.Epoch--
	}
	w.Writer = s
}

// epoch is the epoch of a writer, 0 at first.
func (b *Bucket) epoch(writer string) uint64 {
	if w := b.writers[writer]; w != nil {
		return w.epoch
	}
	return 0
}
