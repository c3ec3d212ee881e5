package router_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
)

// fakeQuotas count, and refuse what they are told to.
type fakeQuotas struct {
	rows, written, read int64
	noWrite, noRead     bool
	waits               int // how often a stream has to wait before it may read more
	asked               []time.Duration
}

func (q *fakeQuotas) Write(_ context.Context, rows int, bytes int64) error {
	if q.noWrite {
		return errs.New(errs.QuotaExceeded, "no more rows")
	}
	q.rows, q.written = q.rows+int64(rows), q.written+bytes
	return nil
}

func (q *fakeQuotas) MayRead(context.Context) error {
	if q.noRead {
		return errs.New(errs.QuotaExceeded, "no more reads")
	}
	return nil
}

func (q *fakeQuotas) Read(_ context.Context, bytes int64, most time.Duration) (bool, error) {
	q.read += bytes
	q.asked = append(q.asked, most)
	if q.waits > 0 {
		q.waits--
		return false, nil
	}
	return true, nil
}

// R12: what is written and read is charged once, whatever way it goes; what is refused was
// not written; and a read that has begun comes to its end.
func TestQuotasAreCharged(t *testing.T) {
	q := &fakeQuotas{}
	f := newFixture(t)
	f.quotas = q
	f.crash()
	keyed, log := f.table("t", true, 2), f.table("u", false, 2)
	for _, tbl := range []*millrace.Table{keyed, log} {
		*q = fakeQuotas{}
		mode := router.Upsert
		if !tbl.Keyed() {
			mode = router.Append
		}
		f.write(tbl, mode, rows(tbl, 0, 1000, "a"))
		require.Equal(t, int64(1000), q.rows)
		require.Greater(t, q.written, int64(1000))
		q.noWrite = true
		_, err := f.r.Write(t.Context(), &router.WriteRequest{Table: tbl, Mode: mode, Rows: rows(tbl, 1000, 1100, "a")})
		require.Equal(t, errs.QuotaExceeded, code(err))
		require.Equal(t, int64(1000), f.count(tbl.Path.String()))

		p, err := f.r.Plan(t.Context(), tbl.Path.String(), &router.ReadRequest{}, router.Scan)
		require.NoError(t, err)
		q.noRead, q.read, q.waits = true, 0, 3 // it has begun
		rd := f.r.Open(p)
		n := 0
		for {
			c, err := rd.Next(t.Context(), time.Hour)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			n += c.Rows
			c.Release()
		}
		require.NoError(t, rd.Close())
		require.Equal(t, 1000, n)
		require.Positive(t, q.read)
		require.Equal(t, rd.Stats().BytesRead, q.read)
		_, err = f.r.Plan(t.Context(), tbl.Path.String(), &router.ReadRequest{}, router.Scan)
		require.Equal(t, errs.QuotaExceeded, code(err))
		_, err = f.r.Page(t.Context(), tbl.Path.String(), &router.ReadRequest{}, router.Scan)
		require.Equal(t, errs.QuotaExceeded, code(err))
		_, _, err = f.r.Offsets(t.Context(), tbl.Path.String(), nil, router.Position{Kind: router.Latest})
		require.NoError(t, err, "of no row")

		// A read that is left is charged for what it gave.
		*q = fakeQuotas{}
		p, err = f.r.Plan(t.Context(), tbl.Path.String(), &router.ReadRequest{}, router.Scan)
		require.NoError(t, err)
		rd = f.r.Open(p)
		c, err := rd.Next(t.Context(), 0)
		require.NoError(t, err)
		c.Release()
		require.NoError(t, rd.Close())
		require.Positive(t, q.read)
		require.Equal(t, rd.Stats().BytesRead, q.read)
	}

	*q = fakeQuotas{}
	res, err := f.r.Lookup(t.Context(), keyed, keyOf(keyed, 7), keyed.Schema.Columns)
	require.NoError(t, err)
	res.Record.Release()
	one := q.read
	require.Positive(t, one)
	ls, err := f.r.OpenLookups(t.Context(), keyed, keyed.Schema.Columns, 1<<20, false)
	require.NoError(t, err)
	res, err = ls.Next(t.Context(), keyOf(keyed, 7))
	require.NoError(t, err)
	res.Record.Release()
	require.Equal(t, 2*one, q.read)
	ps, err := f.r.OpenPrefixLookups(t.Context(), keyed, keyed.Schema.Columns[:1], keyed.Schema.Columns, -1, 1<<20)
	require.NoError(t, err)
	found, err := ps.Next(t.Context(), keyOf(keyed, 7))
	require.NoError(t, err)
	found.Record.Release()
	require.Greater(t, q.read, 2*one)
	q.waits, q.asked = 2, nil
	require.NoError(t, f.r.WaitRead(t.Context(), ps))
	require.Len(t, q.asked, 3)
	q.noRead = true
	_, err = f.r.Lookup(t.Context(), keyed, keyOf(keyed, 7), keyed.Schema.Columns)
	require.Equal(t, errs.QuotaExceeded, code(err))
	_, err = f.r.OpenLookups(t.Context(), keyed, keyed.Schema.Columns, 1<<20, false)
	require.Equal(t, errs.QuotaExceeded, code(err))
	_, err = f.r.PrefixPage(t.Context(), keyed, &router.PrefixRequest{Prefix: row.Rows{Record: keyOf(keyed, 7), Columns: keyed.Schema.Columns[:1]}, PageSize: 10})
	require.Equal(t, errs.QuotaExceeded, code(err))
}

// A tail that has to wait gives nothing meanwhile, and for no longer than it was asked to.
func TestQuotasHoldTailsUp(t *testing.T) {
	q := &fakeQuotas{}
	f := newFixture(t)
	f.quotas = q
	f.crash()
	tbl := f.table("u", false, 1)
	f.write(tbl, router.Append, rows(tbl, 0, 10, "a"))
	rd := f.tail(tbl)
	defer rd.Close()
	q.waits = 2
	for range 2 {
		c, err := rd.Next(t.Context(), 10*time.Millisecond)
		require.NoError(t, err)
		require.Nil(t, c)
	}
	require.Equal(t, []time.Duration{10 * time.Millisecond, 10 * time.Millisecond}, q.asked)
	c, err := rd.Next(t.Context(), time.Minute)
	require.NoError(t, err)
	require.Equal(t, 10, c.Rows)
	c.Release()
	require.Equal(t, router.PassEvery, q.asked[2])
}
