package tier_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/router"
)

// rows are all rows of a table as one tier has them, sorted.
func (n *node) rows(t *millrace.Table, tier string) []string {
	n.t.Helper()
	p, err := n.r.Plan(context.Background(), t.Path.String(), &router.ReadRequest{Tier: tier}, router.Scan)
	require.NoError(n.t, err)
	rd := n.r.Open(p)
	var out []string
	for {
		c, err := rd.Next(context.Background(), time.Second)
		if errors.Is(err, io.EOF) {
			require.NoError(n.t, rd.Close())
			slices.Sort(out)
			return out
		}
		require.NoError(n.t, err)
		rec, err := c.Record()
		require.NoError(n.t, err)
		out = append(out, texts(n.t, rec)...)
		rec.Release()
		c.Release()
	}
}

// union compares what readers of the union see with the hot tier, which has everything
// while logs are kept for ever and no partition is in the lake alone.
func (n *node) union(t *millrace.Table) {
	n.t.Helper()
	if t.Options.Lake == nil || slices.ContainsFunc(n.partitions(t), func(p *millrace.Partition) bool { return p != nil && p.LakeOnly() }) {
		return
	}
	require.Equal(n.t, n.rows(t, "hot"), n.rows(t, "union"), "the union of %s", t.Path)
}
