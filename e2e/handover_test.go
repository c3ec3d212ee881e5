package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
)

// fold keeps a table from its changelog and refuses what cannot be: an insert of a row that is there, an update or
// delete of what is not exactly there.
type fold map[int64]int64

func (f fold) apply(changeType string, id, v int64) error {
	old, there := f[id]
	switch changeType {
	case "+I":
		if there {
			return fmt.Errorf("+I of %d, which is there as %d", id, old)
		}
		f[id] = v
	case "-U", "-D":
		if !there || old != v {
			return fmt.Errorf("%s of %d=%d, but the fold has %d (%v)", changeType, id, v, old, there)
		}
		delete(f, id)
	case "+U":
		if there {
			return fmt.Errorf("+U of %d without a -U before it", id)
		}
		f[id] = v
	}
	return nil
}

// churn upserts and deletes without pause until stopped; keys 0–199.
func (tb table) churn(t *testing.T) (stop func()) {
	t.Helper()
	quit := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-quit:
					return
				default:
				}
				id := (n*7 + w*13) % 200
				rows, mode := fmt.Sprintf(`[{"id":%d,"v":%d},{"id":%d,"v":%d}]`, id, n, (id+1)%200, n), `"mode":"upsert"`
				if n%5 == 4 {
					rows, mode = fmt.Sprintf(`[{"id":%d}]`, id), `"mode":"delete"`
				}
				if err := tb.tryWrite(rows, mode); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	stop = sync.OnceFunc(func() { close(quit); wg.Wait() })
	t.Cleanup(stop)
	return stop
}

const lastKey = 1_000_000 // a row with this key marks the end of the churn in its bucket

// full hands over from state to changelog without gap or repeat while writes go on: a fold of the stream, strict at
// every step, equals the table in the end. Readers join at any moment.
func TestFullHandoverSSE(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, v BIGINT", "id", 4)
	stop := tb.churn(t)
	var folds []fold
	var subs []*subscription
	for range 8 {
		time.Sleep(60 * time.Millisecond)
		sub, err := tb.subscribe(within(t, patience), url.Values{"from": {"full"}}, "")
		require.NoError(t, err)
		defer sub.close()
		subs, folds = append(subs, sub), append(folds, fold{})
	}
	time.Sleep(200 * time.Millisecond)
	stop()
	want := finalState(t, tb)
	for i, sub := range subs {
		for !same(folds[i], want) {
			c, err := sub.change(t)
			require.NoError(t, err)
			require.Contains(t, []string{"+I", "-U", "+U", "-D"}, c.Type)
			require.True(t, c.Offset >= 0 || c.Type == "+I", "a row of the state is +I")
			var row struct{ ID, V int64 }
			require.NoError(t, json.Unmarshal([]byte(c.Row), &row))
			require.NoError(t, folds[i].apply(c.Type, row.ID, row.V), "reader %d", i)
		}
	}
}

// The same through Flight, where the state's batches have no base and the log's batches join on at their next.
func TestFullHandoverFlight(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, v BIGINT", "id", 4)
	stop := tb.churn(t)
	time.Sleep(150 * time.Millisecond)
	c := s.dial(t)
	info, err := c.GetFlightInfo(within(t, patience), command(t, scanCommand(tb, obj{"view": "changelog", "from": "full", "until": "never", "heartbeat_ms": 200})))
	require.NoError(t, err)
	b, err := c.get(within(t, patience), info.Endpoint[0].Ticket.Ticket)
	require.NoError(t, err)
	defer b.cancel()
	f, next := fold{}, map[int]int64{}
	read := func() {
		ch, err := b.next()
		require.NoError(t, err)
		require.NotNil(t, ch.meta.Bucket, "each batch is of one bucket: %s", ch.raw)
		if at, ok := next[*ch.meta.Bucket]; ok && ch.meta.Base != nil && ch.rec.NumRows() > 0 {
			require.Equal(t, at, *ch.meta.Base, "batches of a bucket join: %s", ch.raw)
		}
		if ch.meta.Next != nil && (ch.meta.Base != nil || ch.rec.NumRows() == 0) {
			next[*ch.meta.Bucket] = *ch.meta.Next
		}
		column := func(name string) int { return ch.rec.Schema().FieldIndices(name)[0] }
		types := ch.rec.Column(column("_change_type"))
		ids, vs := ch.rec.Column(column("id")).(*array.Int64), ch.rec.Column(column("v")).(*array.Int64)
		for i := range int(ch.rec.NumRows()) {
			require.NoError(t, f.apply(types.ValueStr(i), ids.Value(i), vs.Value(i)), ch.raw)
		}
	}
	for range 50 {
		read()
	}
	stop()
	want := finalState(t, tb)
	for !same(f, want) {
		read()
	}
}

// finalState marks every bucket's end with a row of its own and returns the table.
func finalState(t *testing.T, tb table) fold {
	t.Helper()
	for i := range 32 { // enough keys to meet each of 4 buckets
		tb.write(t, fmt.Sprintf(`[{"id":%d,"v":0}]`, lastKey+i))
	}
	return stateOf(t, tb)
}

func same(a, b fold) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

// A scan's pages all see one state, whatever is written between them, and say where the changelog goes on.
func TestPagesSeeOneSnapshot(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, v BIGINT", "id", 4)
	var rows string
	for i := range 500 {
		rows += fmt.Sprintf(`,{"id":%d,"v":1}`, i)
	}
	tb.write(t, "["+rows[1:]+"]")
	request := obj{"page_size": 50, "columns": []string{"id", "v"}}
	f := fold{}
	var offsets any
	for i := 0; ; i++ {
		page := s.ok(t, "POST", tb.path()+"/scan", request, "Accept", mediaJSON)
		for _, r := range page["rows"].([]any) {
			id, _ := r.(obj)["id"].(json.Number).Int64()
			v, _ := r.(obj)["v"].(json.Number).Int64()
			require.NoError(t, f.apply("+I", id, v))
			require.EqualValues(t, 1, v, "what is written between pages is not seen")
		}
		if offsets == nil {
			offsets = page["offsets"]
		}
		tb.write(t, fmt.Sprintf(`[{"id":%d,"v":2},{"id":%d,"v":2}]`, i*3, 1000+i))
		token, more := page["next_page_token"]
		if !more {
			break
		}
		request["page_token"] = token
	}
	require.Len(t, f, 500)
	from, err := json.Marshal(offsets)
	require.NoError(t, err)
	for _, c := range tb.allChanges(t, string(from)) {
		var row struct{ ID, V int64 }
		require.NoError(t, json.Unmarshal([]byte(c.Row), &row))
		require.NoError(t, f.apply(c.Type, row.ID, row.V), "the changelog goes on from exactly there")
	}
	require.True(t, same(f, stateOf(t, tb)))
}

func stateOf(t *testing.T, tb table) fold {
	t.Helper()
	f := fold{}
	for _, r := range tb.scan(t, nil) {
		var row struct{ ID, V int64 }
		require.NoError(t, json.Unmarshal([]byte(r), &row))
		f[row.ID] = row.V
	}
	return f
}
