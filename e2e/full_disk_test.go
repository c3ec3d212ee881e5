package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// once checks that a tier of a table has the numbers [0, n) of a column, each once.
func (tb table) once(t testing.TB, column, tier string, n int64) {
	t.Helper()
	got := tb.numbers(t, column, of(tier))
	require.Len(t, got, int(n), tier)
	for i := range n {
		require.Equal(t, 1, got[i], "%d in %s", i, tier)
	}
}

// A lake without room is told of by lake status, whichever file of a round does not fit: writes and all reads go on,
// and nothing leaves the log meanwhile. When there is room again, without a restart, the lake has each row once.
func TestLakeDiskFull(t *testing.T) {
	t.Parallel()
	lake := t.TempDir()
	s := newServerOnDisk(t, 16, lake, "--lake-uri", "file://"+lake)
	db := newDB(t, s)
	log := create(t, s, db, "events", "n BIGINT, v STRING", "", 2, inLake("1s", "table.log.ttl", "1s"))
	keyed := create(t, s, db, "state", "n BIGINT, v STRING", "n", 2, inLake("1s"))
	tables := []table{log, keyed}
	is := func(tb table, want string) bool { return tb.lake(t)["state"] == want }
	n := int64(0)
	write := func() {
		t.Helper()
		rows := "["
		for range 200 {
			rows += fmt.Sprintf(`{"n":%d,"v":"%x"},`, n, n*n*2654435761)
			n++
		}
		for _, tb := range tables {
			tb.write(t, rows[:len(rows)-1]+"]")
		}
		keyed.write(t, `[{"n":0,"v":"again"}]`) // later rounds delete in files that are there
	}
	settled := func() {
		t.Helper()
		for _, tb := range tables {
			require.Eventually(t, func() bool { return is(tb, "ok") && len(tb.numbers(t, "n", of("lake"))) == int(n) }, patience, 50*time.Millisecond)
			tb.once(t, "n", "lake", n)
			tb.once(t, "n", "union", n)
		}
		require.Eventually(t, func() bool { return len(log.numbers(t, "n", of("hot"))) == 0 }, patience, 50*time.Millisecond)
	}
	// fails writes until a table is told to have no room.
	fails := func(tb table) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; time.Sleep(300 * time.Millisecond) {
			if st := tb.lake(t); st["state"] == "failing" {
				require.Equal(t, "storage_full", st["error"].(map[string]any)["code"], "%v", st)
				if s.cli(t, "", "lake", "status", tb.full()).code == 1 {
					return
				}
			}
			require.True(t, time.Now().Before(deadline), "%v", tb.lake(t))
			write() // the room that is left may do for some rounds
		}
	}
	write()
	settled()
	for _, leave := range []int64{0, 8 << 10, 24 << 10} {
		empty := s.fill(t, leave)
		before := n
		for _, tb := range tables {
			fails(tb)
		}
		write()
		time.Sleep(1500 * time.Millisecond) // longer than the log keeps what is in the lake
		if leave == 0 {
			require.Len(t, log.numbers(t, "n", of("hot")), int(n-before), "what is not in the lake stays in the log")
		}
		for _, tb := range tables {
			tb.once(t, "n", "union", n)
			if leave == 0 {
				require.True(t, is(tb, "failing"))
				require.Equal(t, 1, s.cli(t, "", "lake", "status", tb.full()).code)
			} else { // a round may have gone through yet when that of the other table had let go of its room
				fails(tb)
			}
		}
		keyed.once(t, "n", "hot", n)
		require.Equal(t, []string{`{"n":0,"v":"again"}`}, keyed.lookup(t, `[{"n":0}]`))
		require.Equal(t, 200, s.do(t, "GET", "/readyz", nil).status)
		empty()
		settled()
	}
}

// A data directory without room refuses writes with storage_full and serves all reads; a lake beside it that has room
// goes on, one in it says that there is none. With room again, without a restart, all goes on, and the lake has each
// row that was acknowledged once.
func TestDataDiskFull(t *testing.T) {
	t.Parallel()
	for _, inside := range []bool{true, false} {
		t.Run(map[bool]string{true: "lake inside", false: "lake elsewhere"}[inside], func(t *testing.T) {
			t.Parallel()
			var flags []string
			if !inside {
				flags = []string{"--lake-uri", "file://" + t.TempDir()}
			}
			s := newServerOnDisk(t, 48, "", flags...)
			db := newDB(t, s)
			log := create(t, s, db, "events", "n BIGINT, v STRING", "", 2, inLake("1h"))
			keyed := create(t, s, db, "state", "n BIGINT, v STRING", "n", 2, inLake("1h"))
			tables := []table{log, keyed}
			n := int64(0)
			rows := func() string {
				out := "["
				for i := range int64(500) {
					out += fmt.Sprintf(`{"n":%d,"v":"%x"},`, n+i, (n+i)*(n+i)*2654435761)
				}
				return out[:len(out)-1] + "]"
			}
			write := func() {
				t.Helper()
				for _, tb := range tables {
					tb.write(t, rows())
				}
				n += 500
			}
			write()
			for _, tb := range tables {
				tb.tier(t)
			}
			write()
			empty := s.fill(t, 0)
			for _, tb := range tables {
				s.fails(t, 503, "storage_full", "POST", tb.path()+"/records", recordsBody(rows()))
				tb.once(t, "n", "union", n)
				if !inside {
					require.Equal(t, json.Number("500"), tb.tier(t)["rows_tiered"])
					tb.once(t, "n", "lake", n)
					continue
				}
				s.fails(t, 503, "storage_full", "POST", tb.path()+"/lake/tier", nil)
				st := tb.lake(t)
				require.Equal(t, "failing", st["state"])
				require.Equal(t, "storage_full", st["error"].(map[string]any)["code"])
				tb.once(t, "n", "lake", n-500)
			}
			keyed.once(t, "n", "hot", n)
			require.Equal(t, 200, s.do(t, "GET", "/readyz", nil).status)
			empty()
			write()
			for _, tb := range tables {
				require.Equal(t, "ok", tb.tier(t)["state"])
				tb.once(t, "n", "lake", n)
				tb.once(t, "n", "union", n)
			}
		})
	}
}
