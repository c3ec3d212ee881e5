package router_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/admit"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
)

// Shows that a chunk takes room until it is released, and what is kept of it until the read is
// closed; that a read for which there is none is refused with a hint, and can go on later; and
// that nothing is held at the end, of a log, of keyed state and over pages.
func TestReadsTakeRoom(t *testing.T) {
	f := newFixture(t)
	f.room = admit.New(admit.Sent, 8<<20, time.Now, prometheus.NewRegistry())
	f.crash()
	keyed, log := f.table("t", true, 2), f.table("u", false, 2)
	held := func(bytes int64) { // an owner elsewhere reads ahead, of the same room
		t.Helper()
		require.Eventually(t, func() bool { return f.room.Held() == bytes }, time.Minute, time.Millisecond)
	}
	for _, tbl := range []*millrace.Table{keyed, log} {
		mode := router.Upsert
		if !tbl.Keyed() {
			mode = router.Append
		}
		f.write(tbl, mode, rows(tbl, 0, 5000, "some text"))
		open := func() *router.Reader {
			p, err := f.r.Plan(t.Context(), tbl.Path.String(), &router.ReadRequest{}, router.Scan)
			require.NoError(t, err)
			return f.r.Open(p)
		}
		rd := open()
		require.Zero(t, f.room.Held(), "it has read nothing")
		n := 0
		for {
			c, err := rd.Next(t.Context(), time.Hour)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			rec, err := c.Record()
			require.NoError(t, err)
			require.GreaterOrEqual(t, f.room.Held(), int64(9*c.Rows), "the texts are that long")
			require.True(t, testShards != "" || f.room.Held() < 1<<20)
			n += int(rec.NumRows())
			rec.Release()
			c.Release()
			held(0)
			require.NoError(t, rd.Slow())
		}
		require.Equal(t, 5000, n)
		require.NoError(t, rd.Keep(t.Context(), 1000))
		held(1000)
		require.NoError(t, rd.Close())
		held(0)

		other := f.room.Hold()
		require.NoError(t, other.Set(t.Context(), f.room.Limit(), 0))
		rd = open()
		_, err := rd.Next(t.Context(), time.Hour)
		require.Equal(t, errs.Overloaded, code(err))
		require.Positive(t, err.(*errs.Error).Wait()) //nolint:errorlint // it is what is given
		other.Done()
		c, err := rd.Next(t.Context(), time.Hour)
		require.NoError(t, err)
		require.Positive(t, f.room.Held())
		c.Release()
		require.NoError(t, rd.Close())
		held(0)
	}
}
