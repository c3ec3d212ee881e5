package wal_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/wal"
	"github.com/millrace/millrace/storage/wal/waltest"
)

// image is the bytes of a log directory.
type image map[string][]byte

func snapshot(t testing.TB, fs vfs.FS, dir string) image {
	t.Helper()
	names, err := fs.List(dir)
	require.NoError(t, err)
	im := image{}
	for _, n := range names {
		f, err := fs.Open(fs.PathJoin(dir, n))
		require.NoError(t, err)
		im[n], err = io.ReadAll(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	return im
}

func (im image) mem(t testing.TB, dir string) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	require.NoError(t, fs.MkdirAll(dir, 0o755))
	for n, b := range im {
		f, err := fs.Create(fs.PathJoin(dir, n), vfs.WriteCategoryUnspecified)
		require.NoError(t, err)
		_, err = f.Write(slices.Clone(b)) // Write may change what it is given
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	return fs
}

// with returns a copy in which one file is another.
func (im image) with(name string, b []byte) image {
	out := maps.Clone(im)
	out[name] = b
	return out
}

func (im image) files() []string { return slices.Sorted(maps.Keys(im)) }

func crc(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// rec is where a record lies, read with nothing but docs/formats/wal.md.
type rec struct {
	file     string
	off, end int
	group    int
	shard    int
	lsn      uint64
}

// records lists a file's records, and says where its headers end.
func records(t testing.TB, name string, b []byte) (recs []rec, start int) {
	t.Helper()
	le := binary.LittleEndian
	require.Equal(t, "MRWALF\r\n", string(b[:8]))
	start = 2 * int(le.Uint32(b[8:]))
	for off := start; off < len(b); {
		require.Equal(t, "MRWF", string(b[off:off+4]))
		end := off + 40 + int(le.Uint32(b[off+28:]))
		recs = append(recs, rec{name, off, end, int(le.Uint32(b[off+20:])), int(le.Uint16(b[off+32:])), le.Uint64(b[off+40+48:])})
		off = end
	}
	return recs, start
}

// counters are the values of counters and gauges.
func counters(t testing.TB, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		m := f.GetMetric()[0]
		values[f.GetName()] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return values
}

func counter(t testing.TB, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	v, ok := counters(t, reg)[name]
	require.True(t, ok, "no metric %s", name)
	return v
}

// written is a log of some files with known content.
type written struct {
	image image
	want  [][]waltest.Got // by shard
	recs  []rec           // of all files, in order
	start map[string]int  // where the records of a file begin
	last  string          // the newest file
	proof int             // offset in it from which on nothing is proven: its last group
}

const dir = "wal"

// writeLog appends to three shards, one after the other, entries of up to size bytes,
// and when told so one that needs two records.
// The last append is of one record, so that it is the last group.
func writeLog(t testing.TB, appends, size int, rotate int64, fragments bool) *written {
	t.Helper()
	fs := vfs.NewMem()
	opts := options(3)
	opts.RotateBytes = rotate
	f := mustOpen(t, fs, dir, opts)
	w := &written{want: make([][]waltest.Got, 3), start: map[string]int{}}
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range appends {
		id := rng.IntN(3)
		var es []wal.Entry
		for range 1 + rng.IntN(3) {
			es = append(es, wal.Entry{Kind: wal.Data, Data: waltest.Pattern(rng.Uint64(), rng.IntN(size))})
		}
		if i == appends/2 && fragments {
			es = append(es, wal.Entry{Kind: wal.Data, Data: waltest.Pattern(rng.Uint64(), wal.MaxRecordBytes+100)})
		}
		_, err := mustShard(t, f, millrace.ShardID(id)).Append(context.Background(), es)
		require.NoError(t, err)
	}
	for id := range 3 {
		got, err := waltest.ReadAll(mustShard(t, f, millrace.ShardID(id)), 0)
		require.NoError(t, err)
		w.want[id] = got
	}
	w.image = snapshot(t, fs, dir)
	require.NoError(t, f.Close())
	for _, n := range w.image.files() {
		rs, start := records(t, n, w.image[n])
		w.recs = append(w.recs, rs...)
		w.start[n], w.last = start, n
	}
	w.proof = w.recs[len(w.recs)-1].group
	require.Equal(t, w.proof, w.recs[len(w.recs)-1].off)
	if born := int(binary.LittleEndian.Uint64(w.image[w.last][48:])); born > w.proof {
		w.proof = born // a file is synced before it gets its name
	}
	return w
}

// outcome is what is read of a damaged log.
type outcome struct {
	openErr error
	got     [3][]waltest.Got
	err     [3]error
	torn    float64
	headers float64
}

func readLog(t testing.TB, im image) outcome {
	t.Helper()
	reg := prometheus.NewRegistry()
	opts := options(3)
	opts.Registerer = reg
	var o outcome
	f, err := wal.OpenFiles(im.mem(t, dir), dir, opts)
	if err != nil {
		o.openErr = err
		return o
	}
	for id := range 3 {
		o.got[id], o.err[id] = waltest.ReadAll(mustShard(t, f, millrace.ShardID(id)), 0)
	}
	require.NoError(t, f.Close())
	c := counters(t, reg)
	o.torn, o.headers = c["millrace_wal_torn_total"], c["millrace_wal_damaged_headers_total"]
	return o
}

func same(a, b []waltest.Got) bool {
	return slices.EqualFunc(a, b, func(a, b waltest.Got) bool {
		return a.LSN == b.LSN && a.Epoch == b.Epoch && a.Entry.Kind == b.Entry.Kind && slices.Equal(a.Entry.Data, b.Entry.Data)
	})
}

// before is what a shard's replay gives up to a record that is damaged.
func (w *written) before(r rec) []waltest.Got {
	return slices.DeleteFunc(slices.Clone(w.want[r.shard]), func(g waltest.Got) bool { return uint64(g.LSN) >= r.lsn })
}

// flip checks what one flipped bit does.
func (w *written) flip(t *testing.T, name string, pos int, bit uint) {
	t.Helper()
	b := slices.Clone(w.image[name])
	b[pos] ^= 1 << bit
	o := readLog(t, w.image.with(name, b))
	at := fmt.Sprintf("bit %d of byte %d of %s", bit, pos, name)
	require.NoError(t, o.openErr, at)
	hit := -1
	if pos >= w.start[name] {
		i := slices.IndexFunc(w.recs, func(r rec) bool { return r.file == name && pos >= r.off && pos < r.end })
		r := w.recs[i]
		hit = r.shard
		require.True(t, same(w.before(r), o.got[hit]), "%s: what comes before the damage is given, and nothing else", at)
		if name == w.last && r.off >= w.proof {
			require.NoError(t, o.err[hit], at)
			require.EqualValues(t, 1, o.torn, "%s reads as a torn tail", at)
		} else {
			require.Equal(t, errs.CorruptData, errs.CodeOf(o.err[hit]), at)
			require.ErrorContains(t, o.err[hit], fmt.Sprintf("%s at byte %d:", name, r.off), at)
			require.Zero(t, o.torn, at)
		}
	} else {
		require.EqualValues(t, 1, o.headers, "%s is found, and the other copy used", at)
	}
	for id := range 3 {
		if id != hit {
			require.NoError(t, o.err[id], at)
			require.True(t, same(w.want[id], o.got[id]), "%s does not touch shard %d", at, id)
		}
	}
}

// F6: every flipped bit is found before a row is returned. Either the shard it hit
// gives what came before and then errs.CorruptData with file and offset, or it was in
// the last record of all and reads as a torn tail, or it was in one copy of a header
// and the other is used. The other shards give everything. All bits of all headers of
// records are flipped, and random ones elsewhere; 10,000 at least.
func TestBitFlips(t *testing.T) {
	t.Parallel()
	w := writeLog(t, 60, 400, 12_000, false)
	require.Greater(t, len(w.image), 3)
	rng := rand.New(rand.NewPCG(3, 3))
	flips := 0
	every := []int{0, 1, len(w.recs) / 2, len(w.recs) - 2, len(w.recs) - 1}
	for _, i := range every {
		r := w.recs[i]
		for pos := r.off; pos < min(r.end, r.off+130); pos++ {
			for bit := range uint(8) {
				w.flip(t, r.file, pos, bit)
				flips++
			}
		}
	}
	anywhere := func(w *written, n int) {
		names := w.image.files()
		for i := range n {
			name := names[rng.IntN(len(names))]
			from := w.start[name]
			if i%8 == 0 {
				from = 0
			}
			w.flip(t, name, from+rng.IntN(len(w.image[name])-from), uint(rng.IntN(8)))
		}
	}
	anywhere(w, 10_000-flips)
	anywhere(writeLog(t, 10, 400, 5_000, true), 200)
}

// Whatever happens to blocks of the proven part of a log, a shard never silently
// loses a record: it gives all it had, or a part from the beginning and then
// errs.CorruptData. Blocks of a sector or a page are zeroed, filled with noise, or
// exchanged, also so that frames and record headers of several shards go at once.
func TestBlockDamage(t *testing.T) {
	t.Parallel()
	w := writeLog(t, 120, 300, 30_000, false)
	rng := rand.New(rand.NewPCG(5, 5))
	names := w.image.files()
	damaged, spared := 0, 0
	for i := range 2_000 {
		name := names[rng.IntN(len(names))]
		b := slices.Clone(w.image[name])
		limit := len(b)
		if name == w.last {
			limit = w.proof
		}
		size := min([]int{64, 512, 4096}[rng.IntN(3)], (limit-w.start[name])/2)
		at := w.start[name] + rng.IntN(limit-w.start[name]-size)
		block := b[at : at+size]
		switch i % 3 {
		case 0:
			clear(block)
		case 1:
			copy(block, waltest.Pattern(rng.Uint64(), len(block)))
		default:
			from := w.start[name] + rng.IntN(limit-w.start[name]-size)
			copy(block, slices.Clone(b[from:from+len(block)]))
		}
		o := readLog(t, w.image.with(name, b))
		require.NoError(t, o.openErr)
		for id := range 3 {
			what := fmt.Sprintf("shard %d, %d bytes at %d of %s, way %d", id, len(block), at, name, i%3)
			if o.err[id] == nil {
				require.True(t, same(w.want[id], o.got[id]), what)
				spared++
				continue
			}
			damaged++
			require.Equal(t, errs.CorruptData, errs.CodeOf(o.err[id]), what)
			require.LessOrEqual(t, len(o.got[id]), len(w.want[id]), what)
			require.True(t, same(w.want[id][:len(o.got[id])], o.got[id]), what)
		}
	}
	require.Greater(t, damaged, 500)
	require.Greater(t, spared, 500)
}

// F5: a log that is cut at any byte of its last record opens, gives everything before
// it, counts the torn tail and keeps it aside, takes appends, and gives the same and
// the new after another start.
func TestTornTail(t *testing.T) {
	t.Parallel()
	w := writeLog(t, 20, 300, 0, false)
	last := w.recs[len(w.recs)-1]
	full := w.image[w.last]
	for cut := last.off; cut <= last.end; cut++ {
		fs := w.image.with(w.last, full[:cut]).mem(t, dir)
		reg := prometheus.NewRegistry()
		opts := options(3)
		opts.Registerer = reg
		f := mustOpen(t, fs, dir, opts)
		log := mustShard(t, f, millrace.ShardID(last.shard))
		want := w.before(last)
		if cut == last.end {
			want = w.want[last.shard]
		}
		got, err := waltest.ReadAll(log, 0)
		require.NoError(t, err)
		require.True(t, same(want, got), "cut at %d", cut)
		torn := counter(t, reg, "millrace_wal_torn_total")
		if cut == last.off || cut == last.end {
			require.Zero(t, torn)
		} else {
			require.EqualValues(t, 1, torn)
			require.Equal(t, full[last.off:cut], snapshot(t, fs, dir)[w.last+".torn"])
		}
		lsn, err := log.Append(context.Background(), []wal.Entry{{Kind: wal.Data, Data: []byte("new")}})
		require.NoError(t, err)
		want = append(slices.Clone(want), waltest.Got{LSN: lsn, Entry: wal.Entry{Kind: wal.Data, Data: []byte("new")}})
		require.NoError(t, f.Close())

		f = mustOpen(t, fs, dir, options(3))
		got, err = waltest.ReadAll(mustShard(t, f, millrace.ShardID(last.shard)), 0)
		require.NoError(t, err)
		require.True(t, same(want, got), "cut at %d, started again", cut)
		require.NoError(t, f.Close())
	}
}

// A tail of zeros, as preallocation or a crash leaves it, is a clean end.
func TestZeroTail(t *testing.T) {
	w := writeLog(t, 20, 300, 0, false)
	for _, n := range []int{1, 39, 40, 4096, 3 << 20} {
		o := readLog(t, w.image.with(w.last, append(slices.Clone(w.image[w.last]), make([]byte, n)...)))
		require.NoError(t, o.openErr)
		require.Zero(t, o.torn)
		for id := range 3 {
			require.NoError(t, o.err[id])
			require.True(t, same(w.want[id], o.got[id]))
		}
	}
}

// Damage that a start found is not forgotten by later ones, keeps only its own shard
// from appending, and does not keep the files of the others.
func TestDamageLasts(t *testing.T) {
	w := writeLog(t, 40, 300, 0, false)
	r := w.recs[len(w.recs)/2]
	b := slices.Clone(w.image[w.last])
	b[r.off+40+50] ^= 1 // its LSN
	fs := w.image.with(w.last, b).mem(t, dir)
	ctx := context.Background()
	for range 3 {
		opts := options(3)
		opts.RotateBytes = 5000
		f := mustOpen(t, fs, dir, opts)
		for id := range 3 {
			log := mustShard(t, f, millrace.ShardID(id))
			got, err := waltest.ReadAll(log, 0)
			if id == r.shard {
				require.ErrorContains(t, err, fmt.Sprintf("%s at byte %d:", w.last, r.off))
				require.True(t, same(w.before(r), got))
				_, err = log.Append(ctx, []wal.Entry{{Kind: wal.Data}})
				require.Equal(t, errs.CorruptData, errs.CodeOf(err))
				continue
			}
			require.NoError(t, err)
			require.True(t, same(w.want[id], got))
			for range 20 {
				e := wal.Entry{Kind: wal.Data, Data: waltest.Pattern(1, 1000)}
				lsn, err := log.Append(ctx, []wal.Entry{e})
				require.NoError(t, err)
				w.want[id] = append(w.want[id], waltest.Got{LSN: lsn, Entry: e})
			}
		}
		require.NoError(t, f.Close())
	}
	f := mustOpen(t, fs, dir, options(3))
	before := len(snapshot(t, fs, dir))
	require.Greater(t, before, 15)
	for id := range 3 {
		if id != r.shard {
			log := mustShard(t, f, millrace.ShardID(id))
			require.NoError(t, log.Purge(ctx, log.Tail().LSN))
		}
	}
	require.LessOrEqual(t, len(snapshot(t, fs, dir)), 2, "the damaged shard keeps the file that it needs, not the others")
	got, err := waltest.ReadAll(mustShard(t, f, millrace.ShardID(r.shard)), 0)
	require.Equal(t, errs.CorruptData, errs.CodeOf(err))
	require.True(t, same(w.before(r), got))
	require.NoError(t, f.Close())
}

// A record whose body alone is bad does not break the chain: who needs it is told, who
// has it already (a checkpoint does) reads on behind it and appends, start after start.
func TestBadBodyBelowCheckpoint(t *testing.T) {
	w := writeLog(t, 40, 300, 0, false)
	r := w.recs[len(w.recs)/2]
	b := slices.Clone(w.image[w.last])
	b[r.off+40+80+8] ^= 1
	fs := w.image.with(w.last, b).mem(t, dir)
	want := slices.DeleteFunc(slices.Clone(w.want[r.shard]), func(g waltest.Got) bool { return uint64(g.LSN) <= r.lsn })
	require.NotEmpty(t, want)
	for range 3 {
		f := mustOpen(t, fs, dir, options(3))
		log := mustShard(t, f, millrace.ShardID(r.shard))
		got, err := waltest.ReadAll(log, millrace.LSN(r.lsn))
		require.NoError(t, err)
		require.True(t, same(want, got))
		got, err = waltest.ReadAll(log, 0)
		require.Equal(t, errs.CorruptData, errs.CodeOf(err))
		require.ErrorContains(t, err, fmt.Sprintf("%s at byte %d:", w.last, r.off))
		require.True(t, same(w.before(r), got))
		e := wal.Entry{Kind: wal.Data, Data: waltest.Pattern(1, 1000)}
		lsn, err := log.Append(context.Background(), []wal.Entry{e})
		require.NoError(t, err)
		want = append(want, waltest.Got{LSN: lsn, Entry: e})
		require.NoError(t, f.Close())
	}
}

// Both copies of a header damaged, a foreign cluster and a newer release each keep
// the log from opening, and say which it is.
func TestRefusals(t *testing.T) {
	w := writeLog(t, 10, 300, 0, false)
	b := slices.Clone(w.image[w.last])
	b[50] ^= 1
	b[w.start[w.last]/2+60] ^= 1
	err := readLog(t, w.image.with(w.last, b)).openErr
	require.Equal(t, errs.CorruptData, errs.CodeOf(err))
	require.ErrorContains(t, err, w.last+" at byte 0")

	opts := options(3)
	opts.ClusterID = wal.ClusterID{9}
	_, err = wal.OpenFiles(w.image.mem(t, dir), dir, opts)
	require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
	require.ErrorContains(t, err, "belongs to cluster 01020304")

	for name, change := range map[string]func(b []byte){
		"file version":       func(b []byte) { b[16] = 2 },
		"file feature level": func(b []byte) { b[20] = 99 },
	} {
		b := slices.Clone(w.image[w.last])
		half := w.start[w.last] / 2
		change(b)
		binary.LittleEndian.PutUint32(b[12:], crc(append(slices.Clone(b[:12]), b[16:half]...)))
		copy(b[half:], b[:half])
		err := readLog(t, w.image.with(w.last, b)).openErr
		require.Equal(t, errs.NotImplemented, errs.CodeOf(err), name)
		require.ErrorContains(t, err, "newer release", name)
	}
	first := w.recs[0]
	for name, change := range map[string]func(h []byte){
		"record version":       func(h []byte) { h[8] = 2 },
		"record feature level": func(h []byte) { h[12] = 99 },
		"record flags":         func(h []byte) { h[11] = 1 },
	} {
		b := slices.Clone(w.image[w.last])
		h := b[first.off+40 : first.off+120]
		change(h)
		binary.LittleEndian.PutUint32(h[4:], crc(h[8:]))
		err := readLog(t, w.image.with(w.last, b)).openErr
		require.Equal(t, errs.NotImplemented, errs.CodeOf(err), name)
		require.ErrorContains(t, err, "newer release", name)
	}
}

// A row that holds a copy of the log is never taken for the log, when the reader looks
// for the next frame behind a damaged record that contains it.
func TestLogInsideLog(t *testing.T) {
	inner := writeLog(t, 10, 100, 0, false)
	fs := vfs.NewMem()
	f := mustOpen(t, fs, dir, options(3))
	ctx := context.Background()
	log := mustShard(t, f, 0)
	for i := range 3 {
		_, err := log.Append(ctx, []wal.Entry{{Kind: wal.Data, Data: inner.image[inner.last]}})
		require.NoError(t, err)
		_, err = mustShard(t, f, millrace.ShardID(1+i%2)).Append(ctx, []wal.Entry{{Kind: wal.Data, Data: []byte{byte(i)}}})
		require.NoError(t, err)
	}
	im := snapshot(t, fs, dir)
	require.NoError(t, f.Close())
	name := im.files()[0]
	recs, _ := records(t, name, im[name])
	b := slices.Clone(im[name])
	clear(b[recs[2].off : recs[2].off+300]) // frame, header and the beginning of the copy
	o := readLog(t, im.with(name, b))
	require.NoError(t, o.openErr)
	require.Equal(t, errs.CorruptData, errs.CodeOf(o.err[0]))
	require.Len(t, o.got[0], 1)
	require.NoError(t, o.err[1])
	require.Len(t, o.got[1], 2)
	require.NoError(t, o.err[2])
	require.Len(t, o.got[2], 1)
}

// Torn copies are bounded in size and number.
func TestTornCopiesAreBounded(t *testing.T) {
	t.Parallel()
	w := writeLog(t, 5, 300, 0, false)
	im, noise := w.image, waltest.Pattern(1, 1_100_000)
	for range 18 {
		names := slices.DeleteFunc(im.files(), func(n string) bool { return !strings.HasSuffix(n, ".wal") })
		newest := names[len(names)-1]
		fs := im.with(newest, append(slices.Clone(im[newest]), noise...)).mem(t, dir)
		f := mustOpen(t, fs, dir, options(3))
		_, err := mustShard(t, f, 0).Append(context.Background(), []wal.Entry{{Kind: wal.Data}})
		require.NoError(t, err)
		require.NoError(t, f.Close())
		im = snapshot(t, fs, dir)
		require.Len(t, im[newest+".torn"], 1<<20)
	}
	torn := 0
	for n := range im {
		if strings.HasSuffix(n, ".torn") {
			torn++
		}
	}
	require.Equal(t, 16, torn)
}

// When frames and record headers are wiped together, ordinals and the names in the
// next frame tell who lost something and where, so that shards that wrote nothing since
// are not taken for damaged; when they do not tell, those are.
func TestBystanders(t *testing.T) {
	fs := vfs.NewMem()
	f := mustOpen(t, fs, dir, options(4))
	for _, s := range []int{2, 3, 0, 1, 0, 1, 3, 0, 1, 3, 0, 3, 0} {
		_, err := mustShard(t, f, millrace.ShardID(s)).Append(context.Background(), []wal.Entry{{Kind: wal.Data, Data: waltest.Pattern(1, 200)}})
		require.NoError(t, err)
	}
	im := snapshot(t, fs, dir)
	require.NoError(t, f.Close())
	name := im.files()[0]
	recs, _ := records(t, name, im[name])
	for _, c := range []struct {
		wipe    []int
		damaged map[int]int // the shards that are, and the record where
	}{
		{[]int{2, 3}, map[int]int{0: 2, 1: 2}}, // their chains account for both
		{[]int{0}, map[int]int{2: 0}},          // its only record: the next frame names it
		{[]int{8}, map[int]int{1: 8}},          // its last record
		{[]int{2, 3, 4}, map[int]int{0: 2, 1: 2}},
		{[]int{7, 8}, map[int]int{0: 7, 1: 7, 2: 7}},              // 0 misses one; the other may be of any but 3, which goes on unharmed
		{[]int{2, 3, 9}, map[int]int{0: 2, 1: 2, 3: 9}},           // two places, both accounted for
		{[]int{2, 3, 9, 10}, map[int]int{0: 2, 1: 2, 2: 2, 3: 9}}, // 0, damaged already, accounts for nothing in the second place
	} {
		b := slices.Clone(im[name])
		for _, i := range c.wipe {
			clear(b[recs[i].off:recs[i].end])
		}
		fs := im.with(name, b).mem(t, dir)
		f := mustOpen(t, fs, dir, options(4))
		for s := range 4 {
			log := mustShard(t, f, millrace.ShardID(s))
			_, rerr := waltest.ReadAll(log, 0)
			_, aerr := log.Append(context.Background(), []wal.Entry{{Kind: wal.Data}})
			for _, err := range []error{rerr, aerr} {
				if at, ok := c.damaged[s]; ok {
					require.ErrorContains(t, err, fmt.Sprintf("%s at byte %d:", name, recs[at].off), "wiped %v, shard %d", c.wipe, s)
				} else {
					require.NoError(t, err, "wiped %v, shard %d", c.wipe, s)
				}
			}
		}
		require.NoError(t, f.Close())
	}
}

// A start removes what an interrupted one left: files in the making, and files that
// the newest does not list. What is not the log's stays.
func TestLeftovers(t *testing.T) {
	w := writeLog(t, 20, 300, 5_000, false)
	im := w.image.with("00000000000000000099.wal.tmp", []byte("half"))
	im["00000000000000000000.wal"], im["notes.wal"], im["1.wal.tmp"] = []byte("?"), []byte("?"), []byte("?")
	first := w.image.files()[0]
	later := im.with(w.last, slices.Clone(im[w.last]))
	fs := later.mem(t, dir)
	f := mustOpen(t, fs, dir, options(3))
	for id := range 3 {
		log := mustShard(t, f, millrace.ShardID(id))
		require.NoError(t, log.Purge(context.Background(), log.Tail().LSN))
	}
	require.NoError(t, f.Close())
	left := snapshot(t, fs, dir)
	require.NotContains(t, left, first)
	require.NotContains(t, left, "00000000000000000099.wal.tmp")
	for _, n := range []string{"00000000000000000000.wal", "notes.wal", "1.wal.tmp"} {
		require.Contains(t, left, n)
	}
	// The removal did not reach the disk: the file is there again.
	again := left.with(first, w.image[first])
	f = mustOpen(t, again.mem(t, dir), dir, options(3))
	require.NoError(t, f.Close())
	f = mustOpen(t, fs, dir, options(3)) // once more, so that the newest header does not list it
	require.NoError(t, f.Close())
	fs = snapshot(t, fs, dir).with(first, w.image[first]).mem(t, dir)
	f = mustOpen(t, fs, dir, options(3))
	require.NotContains(t, snapshot(t, fs, dir), first)
	for id := range 3 {
		log := mustShard(t, f, millrace.ShardID(id))
		got, err := waltest.ReadAll(log, log.Tail().LSN)
		require.NoError(t, err)
		require.Empty(t, got)
	}
	require.NoError(t, f.Close())
}
