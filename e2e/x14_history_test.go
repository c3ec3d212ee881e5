package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// X14: ninety days that have gone to the lake and from the hot tier, and today, of which the log has a part: sums by customer over all of it are
// complete, no row twice, whichever partitions are where; and a day in the lake alone is read by its filter.
func TestX14NinetyDays(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	for _, key := range []string{"", "dt,order_id"} {
		name := "orders"
		if key != "" {
			name = "keyed"
		}
		tb := create(t, s, db, name, "order_id BIGINT, cust_id BIGINT, amount_cents BIGINT, dt STRING", key, 2, obj{"partition_by": []string{"dt"}}, tiered())
		today := time.Now().UTC()
		const days, each = 90, 14
		var count, total int
		byCustomer := map[int]int{}
		write := func(day string, from, to int) {
			var rows []string
			for i := from; i < to; i++ {
				rows = append(rows, fmt.Sprintf(`{"order_id":%d,"cust_id":%d,"amount_cents":%d,"dt":%q}`, i, i%7, i, day))
				count, total = count+1, total+i
				byCustomer[i%7] += i
			}
			tb.write(t, "["+strings.Join(rows, ",")+"]")
		}
		day := func(ago int) string { return today.AddDate(0, 0, -ago).Format("20060102") }
		for ago := days; ago > 0; ago-- {
			write(day(ago), ago*each, (ago+1)*each)
		}
		write(day(0), 0, each)
		tb.tier(t)
		write(day(0), 10_000, 10_000+each)
		check := func() {
			a := s.ok(t, "POST", "/v1/sql", obj{"sql": "SELECT cust_id, COUNT(*), SUM(amount_cents) FROM " + name + " GROUP BY cust_id", "database": db})
			got := map[string]string{}
			n := 0
			for _, r := range a["rows"].([]any) {
				row := r.([]any)
				got[fmt.Sprint(row[0])] = fmt.Sprint(row[2])
				var c int
				_, err := fmt.Sscan(fmt.Sprint(row[1]), &c)
				require.NoError(t, err)
				n += c
			}
			require.Equal(t, count, n)
			for c, sum := range byCustomer {
				require.Equal(t, fmt.Sprint(sum), got[fmt.Sprint(c)])
			}
			require.Equal(t, [2]string{fmt.Sprint(count), fmt.Sprint(total)}, tb.total(t, name))
			require.Len(t, tb.scan(t, obj{"page_size": 500, "columns": []string{"order_id"}}), count)
			require.Len(t, tb.scan(t, obj{"filter": "dt = '" + day(50) + "' AND amount_cents > " + fmt.Sprint(50*each+3)}), each-4)
		}
		check()
		tb.alter(t, obj{"op": "set_properties", "properties": obj{"table.auto-partition.enabled": "true", "table.auto-partition.time-unit": "DAY", "table.auto-partition.num-retention": "1"}})
		require.Eventually(t, func() bool {
			check() // also while they go
			return len(tb.scan(t, obj{"tier": "hot"})) == each*2+each
		}, patience, 500*time.Millisecond, "the days before yesterday leave the hot tier")
		check()
		write(day(0), 20_000, 20_000+each)
		check()
		tb.tier(t)
		check()
		if key != "" {
			a := s.ok(t, "POST", "/v1/sql", obj{"sql": fmt.Sprintf("SELECT amount_cents FROM %s WHERE dt = '%s' AND order_id = %d", name, day(60), 60*each), "database": db})
			require.Equal(t, fmt.Sprint([]any{[]any{60 * each}}), fmt.Sprint(a["rows"]))
		}
		p := s.fails(t, 422, "partition_expired", "POST", tb.path()+"/records", recordsBody(fmt.Sprintf(`[{"order_id":1,"cust_id":1,"amount_cents":1,"dt":%q}]`, day(40))))
		require.NotEmpty(t, p.Detail)
	}
}
