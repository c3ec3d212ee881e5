package wal

import (
	"slices"

	millrace "github.com/millrace/millrace"
)

// tailScan finds, in the newest file, where each shard's log ends, what of it is
// proven to have been synced, and what is damaged (W4, W5).
type tailScan struct {
	file   uint64
	heads  []head // after the last good record of each shard
	base   []head // the same, at proven
	proven int64  // everything before it was synced
	carry  []item // good records from proven on
	open   []item // bad stretches from proven on

	// broken has the shards whose chain broke in the unproven part, and why.
	broken map[millrace.ShardID]breach
	// cut has, of the shards with a record in the unproven part whose body alone is bad,
	// where they stood before it.
	cut    map[millrace.ShardID]Tail
	lastAt []int64 // offset of each shard's last good record
	// Bad stretches of the proven part that do not tell whose records they held.
	unknown   []item
	explained int64 // records missing in a chain because of them
}

// breach is why a chain broke: a bad stretch, and how many records are missing.
type breach struct {
	at   item
	gone int64
}

func newTailScan(h *fileHeader, heads []head) *tailScan {
	return &tailScan{
		file: h.number, heads: slices.Clone(heads), base: slices.Clone(heads), proven: h.dataStart(),
		broken: map[millrace.ShardID]breach{}, cut: map[millrace.ShardID]Tail{}, lastAt: make([]int64, len(heads)),
	}
}

// run reads the whole file. born is the length that was synced before the file
// got its name.
func (t *tailScan) run(sc *scanner, born int64) error {
	for {
		it, ok, err := sc.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if it.off >= born && t.proven < born {
			t.advance(born)
		}
		if !it.bad && it.group > t.proven {
			t.advance(it.group)
		}
		if err := t.take(sc, it); err != nil {
			return err
		}
	}
	if sc.off < born { // cut off, or wiped
		t.open = append(t.open, item{off: sc.off, end: born, bad: true, shard: noShard, lost: born})
	}
	if t.proven < born {
		t.advance(born)
	}
	for s, tail := range t.cut {
		t.heads[s].Tail = tail
	}
	t.suspect()
	return nil
}

func (t *tailScan) take(sc *scanner, it item) error {
	if it.bad || int(it.shard) >= len(t.heads) {
		it.bad = true
		t.open = append(t.open, it)
		return nil
	}
	if it.rec.newer() {
		return errNewer("a record in " + sc.name)
	}
	_, whole, err := sc.record(it)
	if err != nil {
		return err
	}
	it.bad = !whole
	it.chained = t.accept(it)
	if it.bad {
		t.open = append(t.open, it)
	}
	return nil
}

// accept moves a shard's head behind a record that continues its chain. A bad body does
// not break the chain, which goes through the headers: when the record turns out to
// have been synced, a replay that needs it says that it is damaged.
func (t *tailScan) accept(it item) (chained bool) {
	s, r := it.shard, &it.rec
	h := &t.heads[s]
	if r.epoch < h.Epoch {
		return true // nobody reads it
	}
	if _, broken := t.broken[s]; broken || h.damage.file != 0 {
		return false
	}
	if r.lsn != h.LSN+1 || r.prev != h.Hash || r.logID != h.LogID {
		t.breakAt(it)
		return false
	}
	_, cut := t.cut[s]
	if it.bad && !cut {
		t.cut[s], cut = h.Tail, true
	}
	h.LSN, h.Hash, h.Epoch = r.lsn, r.hash, r.epoch
	t.lastAt[s] = it.off
	if it.off >= t.proven && !cut {
		t.carry = append(t.carry, it)
	}
	return true
}

// breakAt notes that a record does not follow its shard's last one.
func (t *tailScan) breakAt(it item) {
	s := it.shard
	gone := max(int64(it.rec.lsn)-int64(t.heads[s].LSN)-1, 0)
	mine := func(b item) bool { return b.off > t.lastAt[s] && (b.shard == s || b.shard == noShard) }
	if i := slices.IndexFunc(t.open, mine); i >= 0 {
		t.broken[s] = breach{t.open[i], gone}
		return
	}
	cause := it
	if i := slices.IndexFunc(t.unknown, mine); i >= 0 {
		cause = t.unknown[i]
	}
	t.breached(s, breach{cause, gone})
}

func (t *tailScan) breached(s millrace.ShardID, b breach) {
	if b.at.shard == noShard {
		t.explained += b.gone
	}
	t.damage(s, b.at.off)
}

// advance notes that everything before an offset was synced: what is bad there is damage.
func (t *tailScan) advance(to int64) {
	for s, b := range t.broken {
		t.breached(s, b)
	}
	clear(t.broken)
	clear(t.cut)
	later := t.open[:0]
	for _, b := range t.open {
		switch {
		case b.off >= to:
			later = append(later, b)
		case b.chained:
		case int(b.shard) < len(t.heads):
			t.damage(b.shard, b.off)
		default:
			t.unknown = append(t.unknown, b)
		}
	}
	t.open = later
	t.base, t.carry, t.proven = slices.Clone(t.heads), t.carry[:0], to
}

// suspect marks every shard that may have lost its last records in a bad stretch
// that nobody's chain accounts for.
func (t *tailScan) suspect() {
	var lost int64
	for _, b := range t.unknown {
		lost += b.lost
	}
	if lost <= t.explained {
		return
	}
	for s := range t.heads {
		i := slices.IndexFunc(t.unknown, func(b item) bool { return b.off > t.lastAt[s] })
		if i >= 0 {
			t.damage(millrace.ShardID(s), t.unknown[i].off)
		}
	}
}

func (t *tailScan) damage(s millrace.ShardID, at int64) {
	if t.heads[s].damage.file == 0 {
		t.heads[s].damage = place{t.file, at}
		t.base[s].damage = t.heads[s].damage
	}
}
