package wal

import (
	"fmt"
	"slices"

	millrace "github.com/millrace/millrace"
)

// Malformed is a record whose checksums match and whose body makes no sense.
type Malformed struct{ what string }

func (m *Malformed) Error() string { return m.what }

// assembler makes entries of the records of one shard, fed in order.
type assembler struct {
	open      bool // an entry has begun and not ended
	entry     Entry
	abandoned int // entries whose last fragment never came
}

// feed takes a record whose checksums and place in the chain were checked. Without
// fn, entries that end in it are dropped.
func (a *assembler) feed(h *recordHeader, body []byte, fn func(millrace.LSN, millrace.Epoch, Entry) error) error {
	for range h.entries {
		eh, data, rest, ok := cutEntry(body)
		if !ok {
			return &Malformed{fmt.Sprintf("record %d has an entry that does not fit", h.lsn)}
		}
		body = rest
		if eh.flags&^(entryFirst|entryLast|entryIgnorable) != 0 {
			return errNewer("an entry has unknown flags")
		}
		e, whole, err := a.add(eh, data)
		if err != nil {
			return err
		}
		if !whole || fn == nil {
			continue
		}
		if e.Kind == 0 || e.Kind > lastKind {
			if e.Ignorable {
				continue
			}
			return errNewer("an entry is of the unknown " + e.Kind.String())
		}
		if err := fn(h.lsn, h.epoch, e); err != nil {
			return err
		}
	}
	if len(body) > 0 {
		return &Malformed{fmt.Sprintf("record %d has %d bytes behind its entries", h.lsn, len(body))}
	}
	return nil
}

func (a *assembler) add(eh entryHeader, data []byte) (Entry, bool, error) {
	ignorable := eh.flags&entryIgnorable != 0
	if eh.flags&entryFirst != 0 {
		if a.open { // the writer stopped in the middle of it
			a.abandoned++
			a.open = false
		}
		if eh.flags&entryLast != 0 {
			return Entry{Kind: eh.kind, Ignorable: ignorable, Data: data}, true, nil
		}
		a.open, a.entry = true, Entry{Kind: eh.kind, Ignorable: ignorable, Data: append(a.entry.Data[:0], data...)}
		return Entry{}, false, nil
	}
	if !a.open {
		return Entry{}, false, &Malformed{"a fragment comes without the beginning of its entry"}
	}
	if eh.kind != a.entry.Kind || len(a.entry.Data)+len(data) > MaxEntryBytes {
		return Entry{}, false, &Malformed{fmt.Sprintf("a fragment of kind %s with %d bytes does not belong to the entry of kind %s before it", eh.kind, len(data), a.entry.Kind)}
	}
	if n := len(a.entry.Data); n+len(data) > cap(a.entry.Data) {
		a.entry.Data = slices.Grow(a.entry.Data, max(n, len(data))) // doubling: there may be many to come
	}
	a.entry.Data = append(a.entry.Data, data...)
	a.open = eh.flags&entryLast == 0
	return a.entry, !a.open, nil
}
