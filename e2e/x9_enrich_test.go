package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// X9: each row of a log is enriched by lookups, without a cache, while tiers change. An order written after an upgrade
// is acknowledged always finds the new tier.
func TestX9Enrichment(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	orders := create(t, s, db, "orders_log", orderColumns, "", 4)
	dim := create(t, s, db, "cust_dim", customerColumns, "cust_id", 4)
	orders.write(t, `[{"order_id":1001,"cust_id":42,"amount":4200}]`)
	dim.write(t, `[{"cust_id":42,"name":"Acme","tier":"gold"}]`)

	enrich := func(from string) (rows []string, next string) {
		p := orders.changelog(t, "limit=100&from="+url.QueryEscape(from))
		var keys []string
		for _, c := range p.changes {
			var o struct {
				Cust int64 `json:"cust_id"`
			}
			require.NoError(t, json.Unmarshal([]byte(c.Row), &o))
			keys = append(keys, fmt.Sprintf(`{"cust_id":%d}`, o.Cust))
		}
		for i, found := range dim.lookup(t, "["+strings.Join(keys, ",")+"]") {
			var o struct {
				ID, Amount int64
				Cust       int64 `json:"cust_id"`
				OrderID    int64 `json:"order_id"`
			}
			var d struct{ Name, Tier string }
			require.NoError(t, json.Unmarshal([]byte(p.changes[i].Row), &o))
			require.NoError(t, json.Unmarshal([]byte(found), &d))
			rows = append(rows, fmt.Sprintf("%d %d %s %s", o.OrderID, o.Amount, d.Name, d.Tier))
		}
		return rows, p.next
	}
	rows, next := enrich("earliest")
	require.Equal(t, []string{"1001 4200 Acme gold"}, rows)

	tiers := []string{"platinum", "gold", "silver"}
	for i := range 60 {
		tier := tiers[i%3]
		dim.write(t, fmt.Sprintf(`[{"cust_id":42,"tier":%q}]`, tier), `"columns":["cust_id","tier"]`)
		orders.write(t, fmt.Sprintf(`[{"order_id":%d,"cust_id":42,"amount":1}]`, 2000+i))
		rows, next = enrich(next)
		require.Equal(t, []string{fmt.Sprintf("%d 1 Acme %s", 2000+i, tier)}, rows)
	}
}

// X9, read your writes under load: with many writers and readers at once, a lookup that starts after an
// acknowledgement never sees an older version of its own key.
func TestX9ReadYourWrites(t *testing.T) {
	t.Parallel()
	s := shared(t)
	dim := create(t, s, newDB(t, s), "versions", "id BIGINT, v BIGINT", "id", 4)
	var wg sync.WaitGroup
	for id := range 8 {
		wg.Go(func() {
			for v := range 40 {
				a, err := s.send("POST", dim.path()+"/records", recordsBody(fmt.Sprintf(`[{"id":%d,"v":%d}]`, id, v)))
				if err != nil || a.status != 200 {
					t.Errorf("write: %v %s", err, a.body)
					return
				}
				a, err = s.send("POST", dim.path()+"/lookup", fmt.Sprintf(`{"keys":[{"id":%d}]}`, id))
				want := fmt.Sprintf(`{"rows":[{"id":%d,"v":%d}]}`, id, v)
				if err != nil || strings.TrimSpace(string(a.body)) != want {
					t.Errorf("lookup: %v %s, want %s", err, a.body, want)
					return
				}
			}
		})
	}
	wg.Wait()
}

// X10: revenue by tier is kept from the dimension's changelog alone; a customer's revenue moves with its tier and
// leaves with it, and is never counted twice on the way.
func TestX10RevenueFollowsTier(t *testing.T) {
	t.Parallel()
	s := shared(t)
	dim := create(t, s, newDB(t, s), "cust_dim", customerColumns, "cust_id", 4)
	revenue := map[int64]int64{42: 10_000, 7: 500}
	sub, err := dim.subscribe(within(t, patience), url.Values{"from": {"earliest"}}, "")
	require.NoError(t, err)
	defer sub.close()
	byTier := map[string]int64{}
	follow := func(n int) {
		for _, c := range sub.take(t, n) {
			var d struct {
				ID   int64 `json:"cust_id"`
				Tier string
			}
			require.NoError(t, json.Unmarshal([]byte(c.Row), &d))
			if c.Type == "+I" || c.Type == "+U" {
				byTier[d.Tier] += revenue[d.ID]
			} else {
				byTier[d.Tier] -= revenue[d.ID]
			}
			require.LessOrEqual(t, byTier["gold"]+byTier["platinum"], int64(10_500), "never counted twice")
		}
	}
	dim.write(t, `[{"cust_id":42,"name":"Acme","tier":"gold"},{"cust_id":7,"name":"Bolt","tier":"gold"}]`)
	follow(2)
	require.Equal(t, map[string]int64{"gold": 10_500}, byTier)
	dim.write(t, `[{"cust_id":42,"tier":"platinum"}]`, `"columns":["cust_id","tier"]`)
	follow(2)
	require.Equal(t, map[string]int64{"gold": 500, "platinum": 10_000}, byTier)
	s.ok(t, "DELETE", dim.path()+"/rows/42", nil)
	follow(1)
	require.Equal(t, map[string]int64{"gold": 500, "platinum": 0}, byTier)
}
