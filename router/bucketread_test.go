package router_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/router"
)

// Tiering reads one bucket at a time: any range of its log with what each record did,
// or its state with the offset that stands for, and is not taken for a client.
func TestBucketRead(t *testing.T) {
	f := newFixture(t)
	kt := f.table("keyed", true, 1)
	f.write(kt, router.Upsert, rows(kt, 0, 3, "a"))
	f.write(kt, router.Upsert, rows(kt, 1, 2, "b"))
	f.write(kt, router.Delete, rows(kt, 2, 3, "c"))

	lr, err := f.r.LogRange(t.Context(), kt, nil, 0)
	require.NoError(t, err)
	require.Equal(t, router.LogRange{End: 6}, lr)
	before := f.r.Foreground()
	require.Positive(t, before)

	var got []string
	var changes []millrace.ChangeType
	rd := f.r.OpenLog(kt, nil, 0, 2, 6)
	for {
		c, err := rd.Next(context.Background(), 0)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		did, err := c.Changes()
		require.NoError(t, err)
		if did == nil {
			did = make([]millrace.ChangeType, c.Rows)
		}
		require.Len(t, did, c.Rows)
		changes = append(changes, did...)
		at, err := f.r.WrittenAt(t.Context(), kt, []router.LogPlace{{Offset: c.Base}})
		require.NoError(t, err)
		require.Equal(t, at[0].UnixMicro(), c.MicrosAt(0))
		require.WithinDuration(t, time.Now(), at[0], time.Minute)
		rec, err := c.Record()
		require.NoError(t, err)
		got = append(got, text(t, rec)...)
		rec.Release()
		c.Release()
	}
	require.NoError(t, rd.Close())
	require.Equal(t, []millrace.ChangeType{millrace.Insert, millrace.UpdateBefore, millrace.UpdateAfter, millrace.Delete}, changes)
	require.Equal(t, []string{`{"k":2,"n":2,"v":"a2"}`, `{"k":1,"n":1,"v":"a1"}`, `{"k":1,"n":1,"v":"b1"}`, `{"k":2,"n":2,"v":"a2"}`}, got)

	rd, end, err := f.r.OpenState(t.Context(), kt, nil, 0)
	require.NoError(t, err)
	require.EqualValues(t, 6, end)
	c, err := rd.Next(context.Background(), 0)
	require.NoError(t, err)
	require.Equal(t, 2, c.Rows)
	require.Zero(t, c.MicrosAt(0))
	c.Release()
	require.NoError(t, rd.Close())
	require.Equal(t, before, f.r.Foreground())

	none, err := f.r.WrittenAt(t.Context(), kt, []router.LogPlace{{Offset: 6}})
	require.NoError(t, err)
	require.True(t, none[0].IsZero())
}
