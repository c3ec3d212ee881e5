package wal

import (
	"log/slog"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// takeOver scans the newest file and begins the next with what must be carried over.
func (f *Files) takeOver(h *fileHeader) error {
	heads, err := f.grow(h.heads)
	if err != nil {
		return err
	}
	name := f.path(h.number, fileSuffix)
	file, err := f.fs.Open(name, vfs.SequentialReadsOption)
	if err != nil {
		return f.fileError("opening", name, err)
	}
	defer func() { _ = file.Close() }() // only read
	st, err := file.Stat()
	if err != nil {
		return f.fileError("reading", name, err)
	}
	t := newTailScan(h, heads)
	sc := newScanner(file, name, h.number, f.opts.ClusterID, h.dataStart(), st.Size())
	if err := t.run(sc, h.born); err != nil {
		return err
	}
	for s, hd := range t.heads {
		if hd.damage.file != 0 {
			f.met.damaged.Inc()
			f.opts.Logger.Error("shard of the log is damaged", slog.Int("shard", s), slog.String("file", f.path(hd.damage.file, fileSuffix)), slog.Int64("offset", hd.damage.off))
		}
	}
	if len(t.open) > 0 {
		f.keepTorn(file, h.number, t.open[0].off, st.Size())
	}
	t.begin(f.opts.Begin)
	carried, err := f.carry(sc, t)
	if err != nil {
		return err
	}
	f.mu.heads = t.heads
	here := func(hd head) bool { return hd.damage.file == h.number }
	if t.proven > h.dataStart() || slices.ContainsFunc(t.heads, here) {
		f.mu.spans = append(f.mu.spans, span{h.number, h.heads, h.dataStart(), t.proven})
		return f.firstFile(h.number+1, t.base, carried)
	}
	// It holds nothing of use: a start without an append leaves no file behind.
	if err := f.firstFile(h.number+1, t.base, carried); err != nil {
		return err
	}
	f.remove(name)
	return nil
}

// carry copies records behind the proven part, with room for their frames.
func (f *Files) carry(sc *scanner, t *tailScan) ([]byte, error) {
	var out []byte
	for _, it := range t.carry {
		rec, ok, err := sc.record(it)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, errs.New(errs.CorruptData, "%s changed at byte %d while it was read", sc.name, it.off)
		}
		out = append(append(out, make([]byte, frameSize)...), rec...)
	}
	return out, nil
}

// begin makes logs of shards begin anew, without what there is of them.
func (t *tailScan) begin(anew map[millrace.ShardID]Tail) {
	for id, tail := range anew {
		if int(id) >= len(t.heads) {
			continue
		}
		t.heads[id] = head{Tail: tail}
		t.base[id] = t.heads[id]
		t.carry = slices.DeleteFunc(t.carry, func(it item) bool { return it.shard == id })
	}
}
