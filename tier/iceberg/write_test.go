package iceberg

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/objstore/objstoretest"
)

// noise is n random bytes in base64.
func noise(rnd *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return base64.StdEncoding.EncodeToString(b)
}

// TestFilesAndRowGroups writes batches small and large: files end near their target, row
// groups near theirs, and each row is there once.
func TestFilesAndRowGroups(t *testing.T) {
	const target, group, value = 1 << 20, 256 << 10, 64
	w := newWorld(t)
	d := testTable(1, nil, nil, 1, "k BIGINT NOT NULL", "x BYTES")
	d.Options.Lake.TargetFileBytes = target
	lt, err := w.f.open(t.Context(), d)
	require.NoError(t, err)
	r, err := lt.begin(t.Context(), d)
	require.NoError(t, err)
	a, err := r.Append(t.Context(), noBucket)
	require.NoError(t, err)
	a.(*appender).w.group = group
	rnd := rand.New(rand.NewPCG(1, 2))
	rows := 0
	for _, n := range []int{1, 0, 20_000, 10, 500, 20_000} {
		lines := make([]string, n)
		for i := range lines {
			lines[i] = fmt.Sprintf(`{"k":%d,"x":%q}`, rows, noise(rnd, value))
			rows++
		}
		b := batch(t, d.Schema.Columns, lines...)
		require.NoError(t, a.Write(b))
		b.Release()
	}
	require.NoError(t, a.Close())
	_, err = r.commit(t.Context(), at(d, int64(rows)))
	require.NoError(t, err)
	files := w.dataFiles(d)
	total := int64(0)
	require.Greater(t, len(files), 1)
	for i, f := range files {
		total += f.rows
		key, err := keyOf(w.store, f.path)
		require.NoError(t, err)
		body, err := w.store.Get(t.Context(), key)
		require.NoError(t, err)
		require.Less(t, len(body), target+3*pieceBytes) // a page of a column may not be counted yet
		if i < len(files)-1 {
			require.Greater(t, len(body), target*3/4)
		}
		pq, err := file.NewParquetReader(bytes.NewReader(body))
		require.NoError(t, err)
		for g := range pq.NumRowGroups() {
			require.Less(t, pq.MetaData().RowGroup(g).TotalByteSize(), int64(group+2*pieceBytes))
		}
	}
	require.EqualValues(t, rows, total)
	require.EqualValues(t, rows, r.Written().Rows)
	require.Equal(t, len(files), r.Written().Files)
	require.Len(t, w.scan(d), rows)
}

// TestWriteFails makes each call that writes a file fail: the appender says so, says so
// again, and the round leaves nothing behind.
func TestWriteFails(t *testing.T) {
	w := newWorld(t)
	d := testTable(1, nil, nil, 1, "k BIGINT NOT NULL")
	lt, err := w.f.open(t.Context(), d)
	require.NoError(t, err)
	before := w.files()
	r, err := lt.begin(t.Context(), d)
	require.NoError(t, err)
	w.store.Add(objstoretest.Fault{Ops: []objstoretest.Op{objstoretest.OpWrite}})
	a, err := r.Append(t.Context(), noBucket)
	require.NoError(t, err)
	b := batch(t, d.Schema.Columns, `{"k":1}`)
	defer b.Release()
	require.NoError(t, a.Write(b))
	require.ErrorIs(t, a.Close(), objstoretest.ErrInjected)
	require.Error(t, a.Write(b))
	require.Error(t, a.Close())
	require.Zero(t, r.Written().Rows)
	r.Abort(t.Context())
	require.Equal(t, before, w.files())
}
