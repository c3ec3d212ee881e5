package laketest

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
)

// Step names a moment of a format at which Format.Hook is asked.
type Step string

// The steps. An error at any of them but AfterCommit keeps what it names from
// happening; one at AfterCommit is a lost answer.
const (
	Open         Step = "open"
	Newest       Step = "newest"
	Begin        Step = "begin"
	Append       Step = "append"
	Write        Step = "write"
	Close        Step = "close"
	Delete       Step = "delete"
	Clear        Step = "clear"
	BeforeCommit Step = "before commit"
	AfterCommit  Step = "after commit"
	Maintain     Step = "maintain"
	ReadRows     Step = "rows"
	Purge        Step = "purge"
)

// Format is a lake in memory. Its fields are set before it is used.
type Format struct {
	// Hook is asked at each step of a table; nil: nothing goes wrong.
	Hook func(step Step, id millrace.TableID) error
	// Now is the time of commits; nil: some day, a second later each time.
	Now func() time.Time

	mu     sync.Mutex
	tables map[millrace.TableID]*Table
	lastID int64
	asked  int // how often for the time
}

var (
	_ lake.Format   = (*Format)(nil)
	_ lake.Table    = (*Table)(nil)
	_ lake.Snapshot = (*Snapshot)(nil)
	_ lake.Round    = (*Round)(nil)
)

// New makes an empty lake.
func New() *Format { return &Format{tables: map[millrace.TableID]*Table{}, lastID: 1000} }

func (f *Format) ask(step Step, id millrace.TableID) error {
	if f.Hook == nil {
		return nil
	}
	return f.Hook(step, id)
}

// now is the time.
// REQUIRES: mu held.
func (f *Format) now() time.Time {
	if f.Now == nil {
		f.asked++
		return time.Date(2026, 8, 1, 12, 0, f.asked, 0, time.UTC)
	}
	return f.Now()
}

// Open gives the lake table of a table, and makes it when there is none.
func (f *Format) Open(_ context.Context, t *millrace.Table) (lake.Table, error) {
	if err := f.ask(Open, t.ID); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	lt := f.tables[t.ID]
	if lt == nil {
		lt = &Table{f: f, id: t.ID, schemas: map[millrace.SchemaID]*millrace.Schema{}}
		lt.learn(t)
		f.tables[t.ID] = lt
	}
	return lt, nil
}

// Damage is none: what is in memory is not lost.
func (*Table) Damage(context.Context) *lake.Failure { return nil }

// Purge removes a table's lake table.
func (f *Format) Purge(_ context.Context, id millrace.TableID, _ millrace.TablePath) error {
	if err := f.ask(Purge, id); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if lt := f.tables[id]; lt != nil {
		lt.purged = true
		lt.snaps = nil
		delete(f.tables, id)
	}
	return nil
}

// Tables are the numbers of the tables that have a lake table.
func (f *Format) Tables() map[millrace.TableID]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[millrace.TableID]bool{}
	for id := range maps.Keys(f.tables) {
		out[id] = true
	}
	return out
}

// Table is the lake table of one table. Format.mu guards it.
type Table struct {
	f       *Format
	id      millrace.TableID
	schemas map[millrace.SchemaID]*millrace.Schema
	snaps   []*Snapshot // that are kept, by age
	files   int         // ever begun
	purged  bool
}

// learn takes over what a descriptor says of the schema.
func (t *Table) learn(desc *millrace.Table) {
	next := maps.Clone(t.schemas)
	next[desc.Schema.ID] = desc.Schema
	t.schemas = next
}

// Location is an address that nothing lies at.
func (t *Table) Location() string { return fmt.Sprintf("memory://lake/%d", t.id) }

// Newest is the snapshot that was committed last.
func (t *Table) Newest(context.Context) (lake.Snapshot, error) {
	if err := t.f.ask(Newest, t.id); err != nil {
		return nil, err
	}
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	if t.purged {
		return nil, errs.New(errs.CorruptData, "the lake table of table %d was purged", t.id)
	}
	if s := t.newest(); s != nil {
		return s, nil
	}
	return nil, nil
}

// newest is nil when there is none.
// REQUIRES: f.mu held.
func (t *Table) newest() *Snapshot {
	if len(t.snaps) == 0 {
		return nil
	}
	return t.snaps[len(t.snaps)-1]
}

// Snapshot is a snapshot by number.
func (t *Table) Snapshot(_ context.Context, id int64) (lake.Snapshot, error) {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	for _, s := range t.snaps {
		if s.id == id {
			return s, nil
		}
	}
	return nil, errs.New(errs.SnapshotGone, "lake snapshot %d of table %d is no longer kept", id, t.id)
}

// Begin begins a round on the newest snapshot.
func (t *Table) Begin(_ context.Context, desc *millrace.Table) (lake.Round, error) {
	if err := t.f.ask(Begin, t.id); err != nil {
		return nil, err
	}
	if desc.ID != t.id {
		return nil, fmt.Errorf("laketest: a round of table %d on the lake table of %d", desc.ID, t.id)
	}
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	if t.purged {
		return nil, errs.New(errs.CorruptData, "the lake table of table %d was purged", t.id)
	}
	return &Round{t: t, desc: desc, base: t.newest(), deleted: map[*file]map[int64]struct{}{}, cleared: map[*file]bool{}}, nil
}
