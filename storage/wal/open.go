package wal

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Clock tells the time.
type Clock interface{ Now() time.Time }

// Options are the settings and components of a Files.
type Options struct {
	// Settings.
	ClusterID ClusterID
	// Shards is the number of shards; it may grow from one start to the next. A
	// directory that has more keeps them.
	Shards int
	// RotateBytes is the size at which the next file is begun; default 64 MiB.
	RotateBytes int64

	// Components; each may be nil.
	Clock      Clock // for the duration of fsyncs; without one they are not measured
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Random     io.Reader // where log ids come from; default crypto/rand
}

const (
	defaultRotateBytes = 64 << 20
	maxRotateBytes     = 1 << 30 // offsets in frames are 32 bits
)

func (o *Options) ensureDefaults() error {
	if o.RotateBytes == 0 {
		o.RotateBytes = defaultRotateBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	if o.Shards < 1 || o.Shards > noShard {
		return errs.New(errs.InvalidRequest, "a log needs 1 to %d shards, not %d", noShard, o.Shards)
	}
	if o.RotateBytes < 0 || o.RotateBytes > maxRotateBytes {
		return errs.New(errs.InvalidRequest, "log files rotate at up to %d bytes, not %d", maxRotateBytes, o.RotateBytes)
	}
	return nil
}

// Files is the log of all shards of one process, in one directory.
type Files struct {
	fs   vfs.FS
	dir  string
	opts Options
	met  *metrics
	logs []*shardLog

	// The committer's own.
	cur    appendFile
	bufs   [][]byte
	gather []byte

	closing sync.Once
	closed  error

	mu struct {
		sync.Mutex
		heads  []head // what is durable
		spans  []span // the files that live, in order; the last is appended to
		purged []millrace.LSN
		pins   int      // replays under way: files stay
		doomed []uint64 // files to remove when there are none
		queue  []*request
		dead   error // why nothing is acknowledged any more
		closed bool
	}
	wake chan struct{} // for the committer; capacity 1
	done chan struct{} // closed when the committer has ended
}

// span is a file of the log.
type span struct {
	number uint64
	start  []head // where each shard stood when it was begun
	data   int64  // offset of its first frame
	end    int64  // of what belongs to the log
}

// head is where a shard stood when the file was begun: at 0 when it came later.
func (s *span) head(shard millrace.ShardID) head {
	if int(shard) < len(s.start) {
		return s.start[shard]
	}
	return head{}
}

const (
	fileSuffix = ".wal"
	tmpSuffix  = ".wal.tmp"
	tornSuffix = ".wal.torn"
)

func (f *Files) path(number uint64, suffix string) string {
	return f.fs.PathJoin(f.dir, fmt.Sprintf("%020d%s", number, suffix))
}

// parseName is the number of a file name with the suffix.
func parseName(name, suffix string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil && n > 0
}

// OpenFiles opens the log in dir, or begins one. It reads the newest file and the
// headers of the others, begins the next file, and carries over what of the newest
// was not proven to be synced. Damage to single shards does not keep it from
// opening: their Replay and Append say so.
//
// Errors: errs.CorruptData when no shard can be read, errs.NotImplemented when a
// newer release wrote the log, errs.InvalidRequest when it is of another cluster,
// errs.StorageFull, errs.Unavailable.
func OpenFiles(fs vfs.FS, dir string, opts Options) (*Files, error) {
	if err := opts.ensureDefaults(); err != nil {
		return nil, err
	}
	f := &Files{fs: fs, dir: dir, opts: opts, met: newMetrics(opts.Registerer), wake: make(chan struct{}, 1), done: make(chan struct{})}
	if err := makeDir(fs, dir); err != nil {
		return nil, f.fileError("making the directory", dir, err)
	}
	if err := f.load(); err != nil {
		return nil, err
	}
	f.mu.purged = make([]millrace.LSN, len(f.mu.heads))
	f.logs = make([]*shardLog, len(f.mu.heads))
	for s := range f.logs {
		id := millrace.ShardID(s)
		f.logs[s] = &shardLog{f: f, shard: id, enc: encoder{cluster: opts.ClusterID, shard: id}, req: request{shard: id, done: make(chan error, 1)}}
	}
	go f.commitLoop()
	return f, nil
}

// Shards is the number of shards: that of the options, or more when the directory has more.
func (f *Files) Shards() int { return len(f.logs) }

// Shard returns the log of a shard.
func (f *Files) Shard(id millrace.ShardID) (Log, error) {
	if int(id) >= len(f.logs) {
		return nil, errs.New(errs.InvalidRequest, "there is no shard %d: the log has %d", id, len(f.logs))
	}
	return f.logs[id], nil
}

// Err says why nothing is acknowledged any more; nil while all is well.
func (f *Files) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.dead
}

// makeDir makes a directory and syncs the entries of what it made, from the top, one
// by one. The entry of what was there already is synced too: a start before this one
// may have stopped between making and syncing it.
func makeDir(fs vfs.FS, dir string) error {
	var missing []string
	there := dir
	for ; ; there = fs.PathDir(there) {
		_, err := fs.Stat(there)
		if err == nil || there == fs.PathDir(there) {
			break
		}
		if !oserror.IsNotExist(err) {
			return err
		}
		missing = append(missing, there)
	}
	if err := syncDir(fs, fs.PathDir(there)); err != nil && !oserror.IsPermission(err) { // then it is not ours
		return err
	}
	for _, d := range slices.Backward(missing) {
		if err := fs.MkdirAll(d, 0o755); err != nil {
			return err
		}
		if err := syncDir(fs, fs.PathDir(d)); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// load finds what is on disk and begins the next file.
func (f *Files) load() error {
	names, err := f.fs.List(f.dir)
	if err != nil {
		return f.fileError("listing", f.dir, err)
	}
	var numbers []uint64
	for _, name := range names {
		if n, ok := parseName(name, fileSuffix); ok {
			numbers = append(numbers, n)
		}
		if n, ok := parseName(name, tmpSuffix); ok {
			f.remove(f.path(n, tmpSuffix))
		}
	}
	slices.Sort(numbers)
	if len(numbers) == 0 {
		heads, err := f.grow(nil)
		if err != nil {
			return err
		}
		f.mu.heads = heads
		return f.firstFile(1, heads, nil)
	}
	return f.continueFrom(numbers)
}

// continueFrom opens a log that exists.
func (f *Files) continueFrom(numbers []uint64) error {
	newest := numbers[len(numbers)-1]
	h, err := f.readHeader(newest)
	if err != nil {
		return err
	}
	live := map[uint64]int64{}
	for _, fe := range h.files {
		live[fe.number] = fe.end
	}
	for _, n := range numbers[:len(numbers)-1] {
		end, ok := live[n]
		if !ok { // its removal did not reach the disk, or it held nothing
			f.remove(f.path(n, fileSuffix))
			continue
		}
		old, err := f.readHeader(n)
		if err != nil {
			return err
		}
		f.mu.spans = append(f.mu.spans, span{n, old.heads, old.dataStart(), end})
	}
	return f.takeOver(h)
}

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

// remove removes a file that nothing refers to. A failure costs room only; the
// next start tries again.
func (f *Files) remove(name string) {
	if err := f.fs.Remove(name); err != nil && !oserror.IsNotExist(err) {
		f.opts.Logger.Warn("log file could not be removed", slog.String("file", name), slog.Any("err", err))
	}
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

// grow returns heads with those of new shards.
func (f *Files) grow(heads []head) ([]head, error) {
	heads = slices.Clone(heads)
	for len(heads) < f.opts.Shards {
		var b [8]byte
		if _, err := io.ReadFull(f.opts.Random, b[:]); err != nil {
			return nil, errs.Wrap(errs.Internal, "wal.OpenFiles", err)
		}
		heads = append(heads, head{Tail: Tail{LogID: binary.LittleEndian.Uint64(b[:])}})
	}
	return heads, nil
}
