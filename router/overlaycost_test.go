package router

import (
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/lake"
)

// Narrow reads of wide tables with few changes are made from the lake; whole rows, many
// changes, few rows and small limits are taken from state.
func TestOverlayCost(t *testing.T) {
	plan := func(columns, wanted int, limit int64) *Plan {
		s := &millrace.Schema{ID: 1}
		for i := range columns {
			s.Columns = append(s.Columns, millrace.Column{ID: millrace.ColumnID(i + 1), Name: string(rune('a' + i))})
		}
		return &Plan{Table: &millrace.Table{Schema: s}, Data: s.Columns[:wanted], Limit: limit}
	}
	for _, c := range []struct {
		columns, wanted     int
		limit, rows, change int64
		overlay             bool
	}{
		{20, 2, -1, 1_000_000, 0, true},
		{20, 2, -1, 1_000_000, 50_000, true},
		{20, 2, -1, 1_000_000, 500_000, false},
		{20, 20, -1, 1_000_000, 50_000, false},
		{4, 2, -1, 1_000_000, 0, true},
		{4, 2, -1, 1_000_000, 50_000, false},
		{20, 2, -1, 4_000, 0, false},
		{20, 2, 1_000, 1_000_000, 0, false},
	} {
		p := plan(c.columns, c.wanted, c.limit)
		overlay := p.costOfOverlay([]lake.File{{Rows: c.rows}}, c.change) < p.costOfState(c.rows)
		require.Equal(t, c.overlay, overlay, "%+v", c)
	}
}
