package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A body of more chunks than a writer's window is remembered whole: sent again it is
// not written again, another body is found by its first chunk, and a chunk that a
// bucket refused stays refused.
func TestKeyOfManyChunks(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	tb := create(t, s, db, "t", "k INT, v INT", "k", 1, obj{"properties": obj{"table.delete.behavior": "DISABLE"}})
	body := func(first string) string {
		var b strings.Builder
		b.WriteString(first)
		for i := range 66*10_000 - 1 {
			fmt.Fprintf(&b, "{\"k\":%d}\n", i%100)
		}
		return b.String()
	}
	send := func(key, body, query string) (obj, int) {
		a := s.do(t, "POST", tb.path()+"/records"+query, body, "Content-Type", mediaNDJSON, "Idempotency-Key", key)
		return a.object(t), a.status
	}
	good := body("{\"k\":1}\n")
	first, status := send("big", good, "")
	require.Equal(t, 200, status)
	again, status := send("big", good, "")
	require.Equal(t, 200, status)
	require.Equal(t, fmt.Sprint(first["accepted"]), fmt.Sprint(again["replayed"]))
	other, status := send("big", "{\"k\":424242}\n", "")
	require.Equal(t, 422, status)
	require.Equal(t, "idempotency_key_reused", other["code"])
	require.Equal(t, []string{"null"}, tb.lookup(t, `[{"k":424242}]`))

	refused := body("{\"k\":5,\"_change_type\":\"-D\"}\n")
	for range 2 {
		o, status := send("mixed", refused, "?on_error=continue")
		require.Equal(t, 200, status)
		require.Equal(t, "10000", fmt.Sprint(o["rejected"]), "refused the first time, and the second")
	}
}
