package server

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/objstore/faultproxy"
	"github.com/millrace/millrace/objstore/objstoretest"
)

// faultyLake is a server whose lake is in S3 behind a proxy that does faults to it, a
// writer of two of its tables, and what they must hold.
type faultyLake struct {
	*running
	proxy *faultproxy.Proxy

	mu    sync.Mutex
	acked int64           // rows of the log table, numbered from 0
	rows  map[int64]int64 // of the keyed table
	took  []time.Duration // of each write since mark
}

const (
	faultyBatch = 40
	faultyKeys  = 300
)

func startFaultyLake(t *testing.T) *faultyLake {
	gw := objstoretest.StartGateway(t)
	p, err := faultproxy.Start(context.Background(), gw.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", gw.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", gw.SecretKey)
	f := &faultyLake{proxy: p, rows: map[int64]int64{}}
	f.running = startServerWith(t, t.TempDir(), func(s *Settings) {
		s.LakeURI, s.S3Endpoint, s.S3Region, s.S3PathStyle = "s3://"+gw.Bucket+"/faults", p.Endpoint, objstoretest.Region, true
	})
	f.call(t, http.MethodPost, "/v1/databases", `{"name":"f"}`)
	const properties = `"buckets":2,"properties":{"table.datalake.enabled":"true","table.datalake.freshness":"1s"}`
	f.call(t, http.MethodPost, "/v1/databases/f/tables", `{"name":"clicks","columns":[{"name":"id","type":"BIGINT"}],`+properties+`}`)
	f.call(t, http.MethodPost, "/v1/databases/f/tables", `{"name":"stock","columns":[{"name":"k","type":"BIGINT"},{"name":"v","type":"BIGINT"}],"primary_key":["k"],`+properties+`}`)
	return f
}

// write writes a batch to each table; every fifth one deletes.
func (f *faultyLake) write(t *testing.T, n int64) {
	var clicks, stock strings.Builder
	changed := map[int64]int64{}
	remove := n%5 == 4
	for i := n * faultyBatch; i < (n+1)*faultyBatch; i++ {
		fmt.Fprintf(&clicks, `,{"id":%d}`, i)
		k := i * 7 % faultyKeys
		if changed[k] = i; remove {
			fmt.Fprintf(&stock, `,{"k":%d}`, k)
		} else {
			fmt.Fprintf(&stock, `,{"k":%d,"v":%d}`, k, i)
		}
	}
	mode := "upsert"
	if remove {
		mode = "delete"
	}
	began := time.Now()
	f.call(t, http.MethodPost, "/v1/databases/f/tables/clicks/records", `{"rows":[`+clicks.String()[1:]+`]}`)
	f.call(t, http.MethodPost, "/v1/databases/f/tables/stock/records?mode="+mode, `{"rows":[`+stock.String()[1:]+`]}`)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acked = (n + 1) * faultyBatch
	f.took = append(f.took, time.Since(began))
	for k, v := range changed {
		if f.rows[k] = v; remove {
			delete(f.rows, k)
		}
	}
}

// mark gives the slowest of a hundred writes since the last mark.
func (f *faultyLake) mark() (p99 time.Duration, writes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Sort(f.took)
	if writes = len(f.took); writes > 0 {
		p99 = f.took[min(writes-1, writes*99/100)]
	}
	f.took = nil
	return p99, writes
}

func (f *faultyLake) ackedNow() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.acked
}

// watch reads while everything goes on: a union read has each row once, or says plainly
// that the lake does not answer; the worker's own rows are always to be had.
func (f *faultyLake) watch(t *testing.T) (read, refused int) {
	before := f.ackedNow()
	status, _, answer := f.request(t, http.MethodPost, "/v1/sql", `{"sql":"SELECT COUNT(*), SUM(id), MAX(id) FROM f.clicks"}`, "Content-Type", "application/json")
	switch {
	case status == http.StatusOK:
		var got struct{ Rows [][]json.Number }
		if err := json.Unmarshal([]byte(answer), &got); err != nil {
			t.Fatalf("%v: %s", err, answer)
		}
		n, err := got.Rows[0][0].Int64()
		if err != nil || n < before {
			t.Fatalf("a read after %d rows were acknowledged: %s", before, answer)
		}
		if sum, highest := got.Rows[0][1].String(), got.Rows[0][2].String(); n > 0 && (sum != fmt.Sprint(n*(n-1)/2) || highest != fmt.Sprint(n-1)) {
			t.Fatalf("%d rows that are not 0 … %d once each: %s", n, n-1, answer)
		}
		read++
	case status == http.StatusServiceUnavailable && strings.Contains(answer, `"unavailable"`):
		refused++
	default:
		t.Fatalf("a union read: %d %s", status, answer)
	}
	var count struct{ Count int64 }
	before = f.ackedNow()
	if err := json.Unmarshal([]byte(f.call(t, http.MethodGet, "/v1/databases/f/tables/clicks/count?tier=hot", "")), &count); err != nil || count.Count < before {
		t.Fatalf("hot: %+v, %v", count, err)
	}
	return read, refused
}

// pages reads all rows of a table, as the lake has them.
func (f *faultyLake) pages(t *testing.T, table string) []map[string]json.Number {
	var out []map[string]json.Number
	token := ""
	for {
		var got struct {
			Rows []map[string]json.Number
			Next string `json:"next_page_token"`
		}
		body, err := json.Marshal(map[string]any{"page_size": 10_000, "page_token": token, "tier": "lake"})
		if token == "" {
			body, err = []byte(`{"page_size":10000,"tier":"lake"}`), nil
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(f.call(t, http.MethodPost, "/v1/databases/f/tables/"+table+"/scan", string(body))), &got); err != nil {
			t.Fatal(err)
		}
		if out = append(out, got.Rows...); got.Next == "" {
			return out
		}
		token = got.Next
	}
}

// tiered takes both tables to the lake and holds it to what was acknowledged.
func (f *faultyLake) tiered(t *testing.T) {
	for _, table := range []string{"clicks", "stock"} {
		for tries := 0; ; tries++ {
			status, _, answer := f.request(t, http.MethodPost, "/v1/databases/f/tables/"+table+"/lake/tier?timeout=60s", "")
			if status == http.StatusOK {
				break
			}
			if tries == 20 {
				t.Fatalf("the lake does not come back: %d %s", status, answer)
			}
			time.Sleep(500 * time.Millisecond)
		}
	}
	seen := map[string]int{}
	for _, r := range f.pages(t, "clicks") {
		seen[r["id"].String()]++
	}
	for i := range f.acked {
		if n := seen[fmt.Sprint(i)]; n != 1 {
			t.Fatalf("row %d of %d is in the lake %d times", i, f.acked, n)
		}
	}
	if int64(len(seen)) != f.acked {
		t.Errorf("the lake has %d rows, %d were written", len(seen), f.acked)
	}
	got := map[int64]int64{}
	for _, r := range f.pages(t, "stock") {
		k, kerr := r["k"].Int64()
		v, verr := r["v"].Int64()
		if _, twice := got[k]; twice || kerr != nil || verr != nil {
			t.Fatalf("row %v, twice: %v", r, twice)
		}
		got[k] = v
	}
	if !maps.Equal(got, f.rows) {
		t.Errorf("the keyed table in the lake is %v\nwant %v", got, f.rows)
	}
}

// An object store that is slow, refuses, breaks off, loses answers, answers twice or is
// away altogether (F9): writes and the worker's own rows go on, union reads are right or
// refused, and when it is back the lake has each row once.
func TestFaultyLake(t *testing.T) {
	phase := 2 * time.Second
	if s := os.Getenv("MILLRACE_FAULTS_PHASE"); s != "" {
		var err error
		if phase, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	f := startFaultyLake(t)
	defer f.stop(t)
	stop := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for n := int64(0); ; n++ {
			select {
			case <-stop:
				return
			default:
				f.write(t, n)
			}
		}
	})
	some := faultproxy.Rates{
		faultproxy.Delay: 100, faultproxy.SlowDown: 60, faultproxy.InternalError: 30, faultproxy.Reset: 40, faultproxy.Truncate: 30,
		faultproxy.LoseAnswer: 40, faultproxy.LoseAnswerSoftly: 20, faultproxy.Twice: 20,
	}
	for _, p := range []struct {
		name   string
		faults faultproxy.Schedule
	}{
		{"healthy", nil},
		{"some faults", faultproxy.Seeded(1, some)},
		{"away", faultproxy.Always(faultproxy.Reset)},
		{"slow", faultproxy.Always(faultproxy.Delay)},
		{"back", nil},
	} {
		f.proxy.Set(p.faults, 300*time.Millisecond)
		f.mark()
		read, refused := 0, 0
		for end := time.Now().Add(phase); time.Now().Before(end); {
			r, no := f.watch(t)
			read, refused = read+r, refused+no
		}
		p99, writes := f.mark()
		t.Logf("%s: %d writes, p99 %s; %d union reads, %d refused", p.name, writes, p99, read, refused)
		if p.faults == nil && refused > 0 && p.name == "healthy" {
			t.Errorf("%d union reads were refused by a healthy lake", refused)
		}
	}
	close(stop)
	work.Wait()
	f.tiered(t)
	t.Logf("requests by fault: %v", f.proxy.Met())
}
