package tier_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/storage/storagetest"
	"github.com/millrace/millrace/tier/iceberg"
)

// accident is a node whose lake is manipulated behind its back.
type accident struct {
	*node
	store objstore.Store
}

func (x *accident) ctx() context.Context { return context.Background() }

func newAccident(t *testing.T) *accident {
	store, err := objstore.Open(t.Context(), "file:///lake", objstore.Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	x := &accident{store: store}
	x.node = newNode(t, func(n *node) { n.format = x.process() })
	return x
}

// process is the format as a process has it that has just begun.
func (x *accident) process() *iceberg.Format {
	return iceberg.New(iceberg.Options{Store: x.store, Cluster: [16]byte{7}, Clock: storagetest.NewClock(), Logger: slog.New(slog.DiscardHandler)})
}

func (x *accident) restart() {
	x.format = x.process()
	x.crash()
}

// files are all objects of the lake.
func (x *accident) files() map[string][]byte {
	out := map[string][]byte{}
	var keys []string
	require.NoError(x.t, x.store.List(x.ctx(), "", func(i objstore.Info) error {
		keys = append(keys, i.Key)
		return nil
	}))
	for _, k := range keys {
		b, err := x.store.Get(x.ctx(), k)
		require.NoError(x.t, err)
		out[k] = b
	}
	return out
}

// committed are the manifest lists there are, one of each commit.
func (x *accident) committed() (out []string) {
	for k := range x.files() {
		if strings.Contains(k, "/metadata/snap-") {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// restore makes the lake what it was.
func (x *accident) restore(files map[string][]byte) {
	for k := range x.files() {
		require.NoError(x.t, x.store.Remove(x.ctx(), k))
	}
	for k, b := range files {
		require.NoError(x.t, x.store.Put(x.ctx(), k, b))
	}
}

// loseNewest removes the newest versions of the metadata, and the hint.
func (x *accident) loseNewest(versions int) {
	highest, folder := 0, ""
	for k := range x.files() {
		dir, name, _ := strings.Cut(k, "/metadata/")
		var n int
		if _, err := fmt.Sscanf(name, "v%d.metadata.json", &n); err == nil && n > highest {
			highest, folder = n, dir
		}
	}
	for i := range versions {
		require.NoError(x.t, x.store.Remove(x.ctx(), fmt.Sprintf("%s/metadata/v%d.metadata.json", folder, highest-i)))
	}
	require.NoError(x.t, x.store.Remove(x.ctx(), folder+"/metadata/version-hint.text"))
}

func (x *accident) turn(lt *millrace.Table, on bool) {
	x.alter(lt, fmt.Sprintf(`[{"op":"set_properties","properties":{"table.datalake.enabled":"%t"}}]`, on))
}

// refused checks that the table is not tiered, and says why.
func (x *accident) refused(lt *millrace.Table, says ...string) {
	x.t.Helper()
	at := x.committed()
	_, err := x.m.Tier(x.ctx(), x.now(lt))
	require.Truef(x.t, errs.Is(err, errs.CorruptData), "%v", err)
	s, err := x.m.Status(x.ctx(), x.now(lt))
	require.NoError(x.t, err)
	require.Equal(x.t, lake.StateFailing, s.State)
	require.Equal(x.t, errs.CorruptData, s.Failure.Code)
	for _, text := range append(says, "set table.datalake.enabled to false") {
		require.Contains(x.t, s.Failure.Detail, text)
	}
	require.Equal(x.t, at, x.committed(), "a commit was made")
}

// Whatever way the lake goes back, a log table whose log does not have what is gone is not
// tiered until the loss is accepted or the metadata is back. Then each row of the log is in
// the lake once.
func TestLakeWentBack(t *testing.T) {
	for _, accidentOf := range []struct {
		name string
		do   func(x *accident, old map[string][]byte)
	}{
		{"newest versions lost", func(x *accident, _ map[string][]byte) { x.loseNewest(1) }},
		{"old copy", func(x *accident, old map[string][]byte) { x.restore(old) }},
		{"emptied", func(x *accident, _ map[string][]byte) { x.restore(nil) }},
	} {
		for _, restart := range []bool{true, false} {
			if accidentOf.name == "emptied" && !restart {
				continue // the metadata that was seen is gone, which the format says
			}
			for _, mended := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, restart %t, mended %t", accidentOf.name, restart, mended), func(t *testing.T) {
					x := newAccident(t)
					lt := x.table("t", "k BIGINT, v STRING", func(s *catalog.Spec) { s.Properties["table.log.ttl"] = "10min" })
					x.must(lt, router.Append, kv(0, 5, "a"))
					x.tier(lt)
					old := x.files()
					x.must(lt, router.Append, kv(5, 9, "b"))
					x.tier(lt)
					x.expire() // all of it leaves the log
					x.must(lt, router.Append, kv(9, 11, "c"))
					whole := x.files()
					accidentOf.do(x, old)
					if restart {
						x.restart()
					}
					x.refused(lt, "bucket 0 of table d.t")
					x.expire()
					if restart {
						x.restart()
					}
					x.refused(lt)
					if mended {
						x.restore(whole)
						require.Equal(t, lake.StateOK, x.tier(lt).State)
						require.EqualValues(t, 11, x.newest(lt).Totals().Rows)
						return
					}
					x.turn(lt, false)
					x.restart() // that it was accepted survives
					x.turn(lt, true)
					s := x.tier(lt)
					require.Equal(t, lake.StateOK, s.State)
					want := []string{`{"k":10,"v":"c10"}`, `{"k":9,"v":"c9"}`}
					if accidentOf.name != "emptied" {
						want = append([]string{`{"k":0,"v":"a0"}`, `{"k":1,"v":"a1"}`}, `{"k":10,"v":"c10"}`, `{"k":2,"v":"a2"}`, `{"k":3,"v":"a3"}`, `{"k":4,"v":"a4"}`, `{"k":9,"v":"c9"}`)
						require.EqualValues(t, 4, s.Skipped)
					}
					require.Equal(t, want, lakeRows(t, x.newest(lt), lt)[""])
					require.Equal(t, want, x.rows(lt, "union"))

					// The next accident is told again.
					x.must(lt, router.Append, kv(11, 12, "d"))
					x.tier(lt)
					x.expire()
					x.loseNewest(1)
					x.restart()
					x.refused(lt)
				})
			}
		}
	}
}

// While a process is up it knows what the lake had, also when the log has it still; and
// the log keeps it from then on.
func TestLakeWentBackAtOnce(t *testing.T) {
	x := newAccident(t)
	lt := x.table("t", "k BIGINT, v STRING", func(s *catalog.Spec) { s.Properties["table.log.ttl"] = "10min" })
	x.must(lt, router.Append, kv(0, 5, "a"))
	x.tier(lt)
	x.must(lt, router.Append, kv(5, 9, "b"))
	x.tier(lt)
	x.loseNewest(1)
	x.must(lt, router.Append, kv(9, 10, "c"))
	x.refused(lt, "up to offset 5, and had it up to offset 9")
	x.expire()
	x.refused(lt)
	x.turn(lt, false)
	x.turn(lt, true)
	s := x.tier(lt)
	require.Equal(t, lake.StateOK, s.State)
	require.Zero(t, s.Skipped)
	require.EqualValues(t, 10, x.newest(lt).Totals().Rows)
	require.Len(t, x.rows(lt, "union"), 10)
}

// A version that was lost and that somebody else made anew is not taken for the one that
// was seen.
func TestLakeVersionMadeAnew(t *testing.T) {
	x := newAccident(t)
	lt := x.table("t", "k BIGINT, v STRING", nil)
	x.must(lt, router.Append, kv(0, 5, "a"))
	x.tier(lt)
	old := x.files()
	x.must(lt, router.Append, kv(5, 7, "b"))
	x.tier(lt)
	x.must(lt, router.Append, kv(7, 9, "c"))
	x.restore(old)
	format := x.format
	x.format = x.process() // another one, which has seen nothing of that
	other := x.manager(prometheus.NewRegistry())
	other.Attach(x.r)
	x.format = format
	_, err := other.Tier(x.ctx(), lt)
	require.NoError(t, err)
	require.NoError(t, other.Close())
	x.must(lt, router.Append, kv(9, 10, "d"))
	x.tier(lt)
	x.complete(lt)
	require.EqualValues(t, 10, x.newest(lt).Totals().Rows)
}

// Keyed tables have all rows in their state: nothing is lost, and the status tells of it
// until the next round has made up for it.
func TestKeyedLakeWentBack(t *testing.T) {
	for _, restart := range []bool{true, false} {
		x := newAccident(t)
		kt := x.table("t", "k BIGINT, v STRING", func(s *catalog.Spec) {
			s.PrimaryKey, s.Properties["table.log.ttl"] = []string{"k"}, "10min"
		})
		x.must(kt, router.Upsert, kv(0, 5, "a"))
		x.tier(kt)
		old := x.files()
		x.must(kt, router.Upsert, kv(3, 9, "b"))
		x.must(kt, router.Delete, keys(0))
		x.tier(kt)
		x.expire()
		x.restore(old)
		if restart {
			x.restart()
		} else {
			x.clock.Add(11e9) // what was seen is old
		}
		_, err := x.m.Newest(x.ctx(), kt)
		require.NoError(t, err)
		s, err := x.m.Status(x.ctx(), kt)
		require.NoError(t, err)
		require.Equal(t, lake.StateFailing, s.State)
		require.Equal(t, errs.CorruptData, s.Failure.Code)
		require.Contains(t, s.Failure.Detail, "the next round")
		s = x.tier(kt)
		require.Equal(t, lake.StateOK, s.State, s.Failure)
		require.Zero(t, s.Skipped)
		require.EqualValues(t, 8, s.Totals.Rows)
		require.Equal(t, x.rows(kt, "hot"), x.rows(kt, "lake"))
	}
}
