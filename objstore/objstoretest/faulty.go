package objstoretest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/objstore"
)

// Op is a kind of call.
type Op string

// The kinds of calls. OpWrite is Close of a Writer, the moment its object appears.
const (
	OpGet    Op = "get"
	OpReadAt Op = "read_at"
	OpStat   Op = "stat"
	OpList   Op = "list"
	OpPut    Op = "put"
	OpCreate Op = "create"
	OpWrite  Op = "write"
	OpRemove Op = "remove"
)

// Reads and Writes are all there are of each.
var (
	Reads  = []Op{OpGet, OpReadAt, OpStat, OpList}
	Writes = []Op{OpPut, OpCreate, OpWrite, OpRemove}
)

// ErrInjected is what a call that is made to fail returns, unless the fault says
// otherwise.
var ErrInjected = errors.New("objstoretest: this call was made to fail")

// Fault says which calls go wrong, and how.
type Fault struct {
	// Ops are the kinds of calls that count; none: all.
	Ops []Op
	// Key is a part of the key that counts; "": any. A Remove counts when one of its
	// keys does, a List when its prefix does.
	Key string
	// After is how many calls that count pass before the first one goes wrong.
	After int
	// Times is how many go wrong; 0 is one, below 0 all from there.
	Times int

	// Delay passes first, or the call's context ends.
	Delay time.Duration
	// Do is run then, such as what another process does at this moment.
	Do func()
	// Err is returned; nil is ErrInjected unless there is a Delay or Do, which then is
	// all there is.
	Err error
	// Happens says that the call takes effect before its error is returned: its answer
	// is lost. Else it does not take effect.
	Happens bool
}

// Call is a call that was made.
type Call struct {
	Op  Op
	Key string // the first one of a Remove, the prefix of a List
}

// Faulty is a store whose calls go wrong as its faults say; it keeps a list of them.
type Faulty struct {
	objstore.Store

	mu struct {
		sync.Mutex
		faults []*script
		calls  []Call
	}
}

// script is a fault, and how many calls counted for it so far.
type script struct {
	Fault
	seen int
}

var _ objstore.Store = (*Faulty)(nil)

// NewFaulty makes a store of another one, without faults.
func NewFaulty(s objstore.Store) *Faulty { return &Faulty{Store: s} }

// Add adds a fault; of several that apply to a call, the one that was added first does.
func (f *Faulty) Add(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.faults = append(f.mu.faults, &script{Fault: fault})
}

// Heal takes all faults away.
func (f *Faulty) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.faults = nil
}

// Calls are those made so far, in the order they began, or those of some kinds.
func (f *Faulty) Calls(ops ...Op) []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.mu.calls), func(c Call) bool { return len(ops) > 0 && !slices.Contains(ops, c.Op) })
}

// call makes a call, or what a fault makes of it.
func (f *Faulty) call(ctx context.Context, op Op, keys []string, call func() error) error {
	fault := f.meet(op, keys)
	if fault == nil {
		return call()
	}
	if fault.Delay > 0 {
		t := time.NewTimer(fault.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if fault.Do != nil {
		fault.Do()
	}
	err := fault.Err
	if err == nil {
		if fault.Delay > 0 || fault.Do != nil {
			return call()
		}
		err = ErrInjected
	}
	if fault.Happens {
		if own := call(); own != nil {
			return own
		}
	}
	return err
}

// meet notes a call and finds its fault.
func (f *Faulty) meet(op Op, keys []string) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := ""
	if len(keys) > 0 {
		first = keys[0]
	}
	f.mu.calls = append(f.mu.calls, Call{op, first})
	var met *Fault
	for _, s := range f.mu.faults {
		if len(s.Ops) > 0 && !slices.Contains(s.Ops, op) {
			continue
		}
		if s.Key != "" && !slices.ContainsFunc(keys, func(k string) bool { return strings.Contains(k, s.Key) }) {
			continue
		}
		nth := s.seen - s.After
		s.seen++
		if met == nil && nth >= 0 && (s.Times < 0 || nth < max(s.Times, 1)) {
			met = &s.Fault
		}
	}
	return met
}

// Get is part of Reader.
func (f *Faulty) Get(ctx context.Context, key string) (body []byte, err error) {
	err = f.call(ctx, OpGet, []string{key}, func() error {
		body, err = f.Store.Get(ctx, key)
		return err
	})
	if err != nil {
		return nil, err
	}
	return body, nil
}

// ReadAt is part of Reader.
func (f *Faulty) ReadAt(ctx context.Context, key string, p []byte, off int64) error {
	return f.call(ctx, OpReadAt, []string{key}, func() error { return f.Store.ReadAt(ctx, key, p, off) })
}

// Stat is part of Reader.
func (f *Faulty) Stat(ctx context.Context, key string) (info objstore.Info, err error) {
	err = f.call(ctx, OpStat, []string{key}, func() error {
		info, err = f.Store.Stat(ctx, key)
		return err
	})
	if err != nil {
		return objstore.Info{}, err
	}
	return info, nil
}

// List is part of Reader.
func (f *Faulty) List(ctx context.Context, prefix string, give func(objstore.Info) error) error {
	return f.call(ctx, OpList, []string{prefix}, func() error { return f.Store.List(ctx, prefix, give) })
}

// Put is part of Store.
func (f *Faulty) Put(ctx context.Context, key string, body []byte) error {
	return f.call(ctx, OpPut, []string{key}, func() error { return f.Store.Put(ctx, key, body) })
}

// Create is part of Store.
func (f *Faulty) Create(ctx context.Context, key string, body []byte) error {
	return f.call(ctx, OpCreate, []string{key}, func() error { return f.Store.Create(ctx, key, body) })
}

// Remove is part of Store.
func (f *Faulty) Remove(ctx context.Context, keys ...string) error {
	return f.call(ctx, OpRemove, keys, func() error { return f.Store.Remove(ctx, keys...) })
}

// Writer is part of Store; it fails only on its own account.
func (f *Faulty) Writer(ctx context.Context, key string) (objstore.Writer, error) {
	w, err := f.Store.Writer(ctx, key)
	if err != nil {
		return nil, err
	}
	return &faultyWriter{Writer: w, f: f, ctx: ctx, key: key}, nil
}

type faultyWriter struct {
	objstore.Writer

	f   *Faulty
	ctx context.Context
	key string
}

// Close is part of Writer.
func (w *faultyWriter) Close() error {
	defer w.Abort() // when the fault kept it from being closed
	return w.f.call(w.ctx, OpWrite, []string{w.key}, w.Writer.Close)
}
