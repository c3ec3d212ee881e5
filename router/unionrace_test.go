package router_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/router"
)

// oneRound lets one round at a time be made of a lakeside.
type oneRound struct {
	*lakeside
	mu sync.Mutex
}

func (l *oneRound) TakeOver(ctx context.Context, t *millrace.Table, p *millrace.Partition) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lakeside.TakeOver(ctx, t, p)
}

func (l *oneRound) DropPartition(ctx context.Context, t *millrace.Table, p *millrace.Partition) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lakeside.DropPartition(ctx, t, p)
}

var _ router.Lake = (*oneRound)(nil)

// Scans, pages and counts of the union that run while others write, tier, merge files and
// retire partitions have every row that was acknowledged before they began, and none
// twice: of a log table, and of a keyed one read either way.
func TestUnionWhileTiering(t *testing.T) {
	f := newParted(t)
	l := &oneRound{lakeside: newLakeside(t, func() *router.Router { return f.r })}
	f.lake = l
	f.crash()
	f.r.OverlayOnly(1 << 20)
	var tables []*millrace.Table
	for _, keyed := range []bool{false, true} {
		tables = append(tables, f.table(fmt.Sprint("t", keyed), "k BIGINT, dt STRING", func(s *catalog.Spec) {
			s.PartitionBy, s.Buckets = []string{"dt"}, new(2)
			s.Properties = map[string]string{"table.datalake.enabled": "true"}
			if keyed {
				s.PrimaryKey = []string{"k", "dt"}
			}
		}))
	}
	var acked [2]atomic.Int64
	var again sync.Map   // rows that were sent again, though they may have been written
	var day atomic.Int64 // partitions before it take no more writes
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	for i, tbl := range tables {
		mode := []router.Mode{router.Append, router.Upsert}[i]
		wg.Go(func() { // rows are numbered, and written in order
			for n := int64(0); ctx.Err() == nil; {
				var lines []string
				d := day.Load() + n%3
				for range 10 {
					lines = append(lines, fmt.Sprintf(`{"k":%d,"dt":"d%03d"}`, n, d))
					n++
				}
				for {
					res, err := f.write(tbl, mode, strings.Join(lines, " "))
					if errs.Is(err, errs.PartitionExpired) {
						if res != nil { // some buckets took their rows, which come again
							for k := n - 10; k < n; k++ {
								again.Store(k, true)
							}
						}
						lines = strings.Split(strings.ReplaceAll(strings.Join(lines, "\n"), fmt.Sprintf("d%03d", d), fmt.Sprintf("d%03d", d+5)), "\n")
						d += 5
						continue
					}
					if err != nil {
						t.Errorf("write: %v", err)
						return
					}
					break
				}
				acked[i].Store(n)
			}
		})
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				ps, err := f.cat.Partitions(ctx, tbl.ID)
				if err != nil {
					return
				}
				live := ps[:0:0]
				for _, p := range ps {
					if !p.LakeOnly() {
						live = append(live, p)
					}
				}
				l.mu.Lock()
				l.tier(tbl, live...)
				if n%3 == 0 {
					l.maintain(tbl)
				}
				l.mu.Unlock()
				if n%4 == 3 && len(live) > 2 {
					day.Add(1)
					if err := f.r.Retire(context.Background(), live[0]); err != nil {
						t.Errorf("retire: %v", err)
					}
				}
			}
		})
	}
	reads, fromLake := 0, 0
	for began := time.Now(); time.Since(began) < 3*time.Second || (reads <= 10 || fromLake == 0) && time.Since(began) < time.Minute; reads++ {
		i := reads % 2
		least := acked[i].Load()
		p, err := f.r.Plan(context.Background(), tables[i].Path.String(), &router.ReadRequest{}, router.Scan)
		require.NoError(t, err)
		lines, stats := f.drain(p)
		fromLake += stats.LakeFiles
		seen := map[int64]bool{}
		most := int64(-1)
		for _, line := range lines {
			var r struct{ K int64 }
			require.NoError(t, json.Unmarshal([]byte(line), &r))
			if _, ok := again.Load(r.K); !ok {
				require.False(t, seen[r.K], "row %d twice", r.K)
			}
			seen[r.K] = true
			most = max(most, r.K)
		}
		for k := range least {
			require.True(t, seen[k], "row %d of %d is not there", k, least)
		}
		n, err := f.r.Count(context.Background(), tables[i].Path.String(), &router.ReadRequest{})
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, int64(len(lines)))
	}
	cancel()
	wg.Wait()
	require.Greater(t, reads, 10)
	require.Positive(t, fromLake)
}

// meanwhileLake does something once, after the newest snapshot was taken and before the
// router has it.
type meanwhileLake struct {
	*lakeside
	meanwhile func()
}

func (l *meanwhileLake) Newest(ctx context.Context, t *millrace.Table) (lake.Snapshot, error) {
	s, err := l.lakeside.Newest(ctx, t)
	if do := l.meanwhile; do != nil {
		l.meanwhile = nil
		do()
	}
	return s, err
}

// A partition that goes to the lake, and from the workers, just after a plan has pinned
// its snapshot is read from the next one: the plan is made anew.
func TestPartitionEndsWhilePlanned(t *testing.T) {
	f := newParted(t)
	l := &meanwhileLake{lakeside: newLakeside(t, func() *router.Router { return f.r })}
	f.lake = l
	f.crash()
	ctx := context.Background()
	for _, keyed := range []bool{false, true} {
		tbl := f.table(fmt.Sprint("t", keyed), "k BIGINT, dt STRING", func(s *catalog.Spec) {
			s.PartitionBy, s.Buckets = []string{"dt"}, new(2)
			s.Properties = map[string]string{"table.datalake.enabled": "true"}
			if keyed {
				s.PrimaryKey = []string{"k", "dt"}
			}
		})
		mode := router.Append
		if keyed {
			mode = router.Upsert
		}
		f.must(tbl, mode, `{"k":1,"dt":"a"} {"k":2,"dt":"a"} {"k":3,"dt":"a"} {"k":4,"dt":"b"}`)
		a := f.partition(tbl, "dt=a")
		l.tier(tbl, a)
		f.must(tbl, mode, `{"k":5,"dt":"a"} {"k":6,"dt":"a"}`)
		path := tbl.Path.String()
		for _, gone := range []bool{false, true} {
			l.meanwhile = func() {
				require.NoError(t, f.r.Retire(ctx, a))
				if gone {
					f.clock.Add(2 * time.Hour)
					require.NoError(t, f.r.LetGoOf(ctx, f.partition(tbl, "dt=a")))
				}
			}
			rows, _ := f.scan(path, &router.ReadRequest{})
			require.Len(t, rows, 6, "keyed %v gone %v", keyed, gone)
			require.Nil(t, l.meanwhile)
		}
		// A ticket of before is good while the workers keep what it reads.
		f.must(tbl, mode, `{"k":7,"dt":"b"}`)
		p, err := f.r.Plan(ctx, path, &router.ReadRequest{}, router.Scan)
		require.NoError(t, err)
		require.NoError(t, f.r.Hold(context.Background(), p, router.TicketTTL, router.TicketTTL))
		ticket, err := f.r.Ticket(p, f.clock.Now().Add(router.TicketTTL))
		require.NoError(t, err)
		p.Close()
		require.NoError(t, f.r.Retire(ctx, f.partition(tbl, "dt=b")))
		f.clock.Add(router.TicketTTL)
		p, err = f.r.OpenTicket(ctx, ticket)
		require.NoError(t, err)
		rows, _ := f.drain(p)
		require.Len(t, rows, 7)
	}
}
