package bucket_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/segment"
)

var (
	id     = millrace.BucketID{Table: 1, Bucket: 2}
	schema = &millrace.Schema{ID: 1, Columns: []millrace.Column{
		{ID: 1, Name: "n", Type: millrace.DataType{Kind: millrace.BigInt}},
		{ID: 2, Name: "s", Type: millrace.DataType{Kind: millrace.String}, Nullable: true},
	}}
)

func schemas(v millrace.SchemaID) *millrace.Schema {
	if v == schema.ID {
		return schema
	}
	return nil
}

func options(fs vfs.FS) bucket.Options {
	return bucket.Options{FS: fs, Dir: "segments/t/p/b", Root: "segments", SealBytes: 8 << 10, Logger: slog.New(slog.DiscardHandler)}
}

func newFS(t testing.TB) *vfs.MemFS {
	fs := vfs.NewCrashableMem()
	require.NoError(t, fs.MkdirAll("segments", 0o755))
	require.NoError(t, bucket.SyncDir(fs, "segments"))
	require.NoError(t, bucket.SyncDir(fs, ""))
	return fs
}

// records are n rows numbered from first, as columns or as rows.
func payload(t testing.TB, first, n int, text string, columns bool) []byte {
	b := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(schema.Columns))
	defer b.Release()
	for i := range n {
		b.Field(0).(*array.Int64Builder).Append(int64(first + i))
		b.Field(1).(*array.StringBuilder).Append(text)
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	if columns {
		p, err := segment.AppendColumns(nil, schema, rec, nil, segment.EncodeOptions{})
		require.NoError(t, err)
		return p
	}
	codec := row.NewCodec(schema)
	var rows [][]byte
	for i := range n {
		rows = append(rows, codec.AppendRow(nil, rec, i))
	}
	return segment.AppendRows(nil, schema.ID, nil, rows)
}

// add appends a batch of n rows, numbered as their offsets; their time is that of the
// first.
func add(t testing.TB, l *bucket.Log, n int, text string, columns bool) {
	t.Helper()
	end := l.View().End
	b, err := bucket.Stamp(id, end, payload(t, int(end), n, text, columns), segment.TimeRun{Rows: n, Micros: int64(end)})
	require.NoError(t, err)
	l.Append(b)
}

func flush(l *bucket.Log) (int64, error) { return l.Flush(l.View().End, schemas, schema) }

// read reads all records of a view and checks that each is the one of its offset.
func read(l *bucket.Log, v *bucket.View) error {
	for off := v.Start; off < v.End; {
		b, err := l.At(v, off)
		if err != nil {
			return err
		}
		rec, err := b.Payload.Record(memory.DefaultAllocator, schemas, schema.Columns)
		if err != nil {
			return errors.Join(err, b.Release())
		}
		for i := range int(rec.NumRows()) {
			if n := rec.Column(0).(*array.Int64).Value(i); n != int64(b.Header.Base)+int64(i) {
				return fmt.Errorf("offset %d holds record %d", int64(b.Header.Base)+int64(i), n)
			}
		}
		off = b.Header.Base + millrace.Offset(rec.NumRows())
		rec.Release()
		if err := b.Release(); err != nil {
			return err
		}
	}
	return nil
}

// Shows that batches of all sizes and kinds read the same before, while and after they
// move to files, also through views taken before; that small ones are merged, files are
// sealed, and memory is given back.
func TestFlush(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	l := bucket.New(id, 0, options(newFS(t)))
	var views []*bucket.View
	for range 300 {
		for range rng.IntN(20) {
			n := 1
			if rng.IntN(3) == 0 {
				n = 1 + rng.IntN(200)
			}
			add(t, l, n, strings.Repeat("t", rng.IntN(30)), rng.IntN(2) == 0)
		}
		if rng.IntN(10) == 0 {
			views = append(views, l.View())
		}
		if rng.IntN(4) == 0 {
			before := l.View().TailBytes()
			freed, err := flush(l)
			require.NoError(t, err)
			require.Equal(t, before, freed)
			require.Zero(t, l.View().TailBytes())
			require.Empty(t, l.View().Tail())
		}
	}
	for _, v := range append(views, l.View()) {
		require.NoError(t, read(l, v))
	}
	for range 300 {
		v := l.View()
		micros := rng.Int64N(int64(v.End) + 10)
		off, err := l.OffsetAt(v, micros)
		require.NoError(t, err)
		// The time of a record is the offset at which its batch began.
		if off < v.End {
			b, err := l.At(v, off)
			require.NoError(t, err)
			require.GreaterOrEqual(t, b.Header.TimeAt(int(off-b.Header.Base)), micros)
			require.NoError(t, b.Release())
		}
		if off > 0 {
			b, err := l.At(v, off-1)
			require.NoError(t, err)
			require.Less(t, b.Header.TimeAt(int(off-1-b.Header.Base)), micros)
			require.NoError(t, b.Release())
		}
	}
	_, err := flush(l)
	require.NoError(t, err)
	st, err := l.Sync()
	require.NoError(t, err)
	require.Greater(t, len(st.Files), 3)
	for i, f := range st.Files {
		require.Equal(t, i < len(st.Files)-1, f.Sealed)
	}
	old := l.View()
	held, err := l.At(old, 0)
	require.NoError(t, err)
	gone := errs.New(errs.TableNotFound, "gone")
	require.NoError(t, l.Close(gone))
	_, err = l.At(old, 0)
	require.Equal(t, gone, err)
	_, err = held.Payload.Record(memory.DefaultAllocator, schemas, schema.Columns) // it reads on
	require.NoError(t, err)
	require.NoError(t, held.Release())
	_, err = l.Sync()
	require.ErrorIs(t, err, bucket.ErrClosed)
	freed, err := flush(l)
	require.NoError(t, err)
	require.Zero(t, freed)
}

// Shows that readers see whole logs while batches are appended and moved.
func TestReadWhileFlushing(t *testing.T) {
	l := bucket.New(id, 0, options(newFS(t)))
	var wg sync.WaitGroup
	done := make(chan struct{})
	errc := make(chan error, 4)
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := read(l, l.View()); err != nil {
					errc <- err
					return
				}
			}
		})
	}
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := flush(l); err != nil {
				errc <- err
				return
			}
			if _, err := l.Sync(); err != nil {
				errc <- err
				return
			}
		}
	})
	for i := range 300 {
		add(t, l, 1+i%7, "text", i%2 == 0)
	}
	close(done)
	wg.Wait()
	require.Empty(t, errc)
	require.NoError(t, l.Close(io.EOF))
}

// Shows that many batches that compress well are not merged into one that is too
// large, nor rows that take much more as columns; and that a row that fits no
// columnar payload stays a row.
func TestFlushOfWhatGrows(t *testing.T) {
	o := options(newFS(t))
	o.SealBytes = 1 << 30
	l := bucket.New(id, 0, o)
	for range 30 {
		add(t, l, 30, strings.Repeat("z", 50_000), true) // 1.5 MB, that compress to some KB
	}
	_, err := flush(l)
	require.NoError(t, err)
	v := l.View()
	require.NoError(t, read(l, v))
	b, err := l.At(v, 0)
	require.NoError(t, err)
	require.Greater(t, b.Header.Rows, 60, "they are merged")
	require.Less(t, b.Header.Rows, 300, "not too many of them")
	require.NoError(t, b.Release())
	require.NoError(t, l.Close(io.EOF))

	wide := &millrace.Schema{ID: 1, Columns: []millrace.Column{
		{ID: 1, Name: "a", Nullable: true, Type: millrace.DataType{Kind: millrace.Array, Children: []millrace.Column{
			{ID: 2, Name: millrace.ElementName, Nullable: true, Type: millrace.DataType{Kind: millrace.Binary, Length: 1 << 20}},
		}}},
	}}
	for _, nulls := range []int{25, 62} { // MiB a row
		rb := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(wide.Columns))
		lb := rb.Field(0).(*array.ListBuilder)
		lb.Append(true)
		for range nulls {
			lb.ValueBuilder().AppendNull()
		}
		rec := rb.NewRecordBatch()
		enc := row.NewCodec(wide).AppendRow(nil, rec, 0)
		rec.Release()
		rb.Release()
		require.Less(t, len(enc), 1000)
		l = bucket.New(id, 0, options(newFS(t)))
		for i := range 3 {
			tb, err := bucket.Stamp(id, millrace.Offset(i), segment.AppendRows(nil, 1, nil, [][]byte{enc}), segment.TimeRun{Rows: 1, Micros: 1})
			require.NoError(t, err)
			l.Append(tb)
		}
		of := func(millrace.SchemaID) *millrace.Schema { return wide }
		_, err = l.Flush(3, of, wide)
		require.NoError(t, err)
		require.Empty(t, l.View().Tail())
		for off := millrace.Offset(0); off < 3; {
			b, err := l.At(l.View(), off)
			require.NoError(t, err)
			rec, err := b.Payload.Record(memory.DefaultAllocator, of, wide.Columns)
			require.NoError(t, err)
			off += millrace.Offset(rec.NumRows())
			rec.Release()
			require.NoError(t, b.Release())
		}
		require.NoError(t, l.Close(io.EOF))
	}
}

// Shows that a log that is restored from what Sync gave is the same log, after a crash
// at any time, and that states that do not fit together are found.
func TestRestore(t *testing.T) {
	fs := newFS(t)
	options := func(fs vfs.FS) bucket.Options {
		o := options(fs)
		o.SealBytes = 1 << 10
		return o
	}
	l := bucket.New(id, 0, options(fs))
	for round := range 5 {
		for i := range 40 {
			add(t, l, 1+i%5, "text", i%3 == 0)
		}
		if round < 4 {
			_, err := flush(l)
			require.NoError(t, err)
		}
	}
	st, err := l.Sync()
	require.NoError(t, err)
	require.NotEmpty(t, st.Tail)
	end := l.View().End
	add(t, l, 100, "lost", false)
	_, err = flush(l)
	require.NoError(t, err)
	require.NoError(t, l.Close(io.EOF))
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})

	again, err := bucket.Restore(id, st, options(crashed))
	require.NoError(t, err)
	require.Equal(t, end, again.View().End)
	require.NoError(t, read(again, again.View()))
	add(t, again, 10, "more", true)
	_, err = flush(again)
	require.NoError(t, err)
	require.NoError(t, read(again, again.View()))
	require.NoError(t, again.Close(io.EOF))

	broken := func(change func(*bucket.State)) {
		s := st
		s.Files = append([]bucket.FileState(nil), st.Files...)
		s.Tail = append([]bucket.TailBatch(nil), st.Tail...)
		change(&s)
		_, err := bucket.Restore(id, s, options(crashed))
		require.True(t, errs.Is(err, errs.CorruptData), "%v", err)
	}
	broken(func(s *bucket.State) { s.Files = s.Files[1:] })
	broken(func(s *bucket.State) { s.Files = append(s.Files[:1], s.Files[2:]...) })
	broken(func(s *bucket.State) { s.Tail = s.Tail[1:] })
	broken(func(s *bucket.State) { s.Files = nil })
	broken(func(s *bucket.State) { s.Files[0].Base = 5 })
	require.NoError(t, crashed.Remove("segments/t/p/b/"+segment.FileName(st.Files[0].Base)))
	broken(func(*bucket.State) {})
}

// Shows that a flush that finds no room keeps what it could not write in memory, reads
// on, syncs what it wrote before, and goes on in a new file when there is room; and
// that after a failed fsync the log says that it cannot be checkpointed.
func TestFlushFails(t *testing.T) {
	for k := 0; ; k++ {
		mem := newFS(t)
		n, fails := 0, true
		var hit bool
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			switch op.Kind {
			case errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpMkdirAll:
				if n++; fails && n-1 == k {
					hit = true
					return syscall.ENOSPC
				}
			default:
			}
			return nil
		}))
		l := bucket.New(id, 0, options(fs))
		for range 8 {
			for i := range 30 {
				add(t, l, 1+i%5, strings.Repeat(fmt.Sprint(i), 50), i%3 == 0)
			}
			_, err := flush(l)
			if err != nil {
				require.True(t, errs.Is(err, errs.StorageFull) || errors.Is(err, syscall.ENOSPC), "%v", err)
			}
			require.NoError(t, read(l, l.View()))
			st, err := l.Sync()
			require.NoError(t, err)
			again, err := bucket.Restore(id, st, options(mem.CrashClone(vfs.CrashCloneCfg{})))
			require.NoError(t, err)
			require.Equal(t, l.View().End, again.View().End)
			require.NoError(t, read(again, again.View()))
			require.NoError(t, again.Close(io.EOF))
		}
		require.NoError(t, l.Close(io.EOF))
		if !hit {
			require.Greater(t, k, 10)
			break
		}
	}

	fs := errorfs.Wrap(newFS(t), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync && strings.HasSuffix(op.Path, ".seg") {
			return errorfs.ErrInjected
		}
		return nil
	}))
	l := bucket.New(id, 0, options(fs))
	add(t, l, 10, "text", false)
	_, err := flush(l)
	require.NoError(t, err)
	for range 2 {
		_, err = l.Sync()
		require.ErrorIs(t, err, errorfs.ErrInjected)
		add(t, l, 10, "text", false)
		_, _ = flush(l) // the second begins a new file
		require.NoError(t, read(l, l.View()))
	}
	require.NoError(t, l.Close(io.EOF))
}

// Shows that no more is gathered for a read than a client may hold up: each reads on from
// where the one before ends.
func TestGatherIsBounded(t *testing.T) {
	l := bucket.New(id, 0, options(newFS(t)))
	long := strings.Repeat("long text ", 10_000)
	for range 60 { // 6 MB, as text
		add(t, l, 1, long, false)
	}
	v := l.View()
	n := 0
	for off := v.Start; off < v.End; n++ {
		b, err := l.Gather(v, off, schemas, schema)
		require.NoError(t, err)
		require.Less(t, b.Payload.RawBytes(), int64(2<<20))
		off = b.Header.End()
		require.NoError(t, b.Release())
	}
	require.Greater(t, n, 3)
	require.Less(t, n, 20, "they are read together")
	require.NoError(t, l.Close(io.EOF))
}

// Shows that small batches of the tail are gathered into one, whichever of them is
// asked for, and the records are the same.
func TestGather(t *testing.T) {
	l := bucket.New(id, 0, options(newFS(t)))
	for i := range 50 {
		add(t, l, 1+i%3, "text", i%2 == 0)
	}
	v := l.View()
	for off := v.Start; off < v.End; off++ {
		b, err := l.Gather(v, off, schemas, schema)
		require.NoError(t, err)
		require.LessOrEqual(t, b.Header.Base, off)
		require.Equal(t, v.End, b.Header.End())
		rec, err := b.Payload.Record(memory.DefaultAllocator, schemas, schema.Columns)
		require.NoError(t, err)
		require.EqualValues(t, off, rec.Column(0).(*array.Int64).Value(int(off-b.Header.Base)))
		rec.Release()
		require.NoError(t, b.Release())
	}
	for _, off := range []millrace.Offset{-1, v.End} {
		_, err := l.Gather(v, off, schemas, schema)
		require.True(t, errs.Is(err, errs.OffsetOutOfRange), "%v", err)
	}
	require.NoError(t, l.Close(io.EOF))
}
