package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// behindLake is a table of which the lake has more than comes back.
type behindLake struct {
	table

	back int64 // rows from 0 on that come back
}

// safeRows of old tables are in what comes back, tieredRows of all tables in the lake.
const safeRows, tieredRows = 40, 100

func (b *behindLake) add(t *testing.T, from, to int64) {
	t.Helper()
	var rows []string
	for id := from; id < to; id++ {
		rows = append(rows, fmt.Sprintf(`{"id":%d}`, id))
	}
	b.write(t, "["+strings.Join(rows, ",")+"]")
	require.Equal(t, "ok", b.tier(t)["state"], b.name)
}

// createBehindLake makes a log table, of which all comes back since the lake has it, and a keyed one, of which safe rows do.
func createBehindLake(t *testing.T, s *server, db, prefix string, safe int64) []*behindLake {
	t.Helper()
	return []*behindLake{
		{create(t, s, db, prefix+"_log", "id BIGINT NOT NULL", "", 3, inLake("1h")), tieredRows},
		{create(t, s, db, prefix+"_keyed", "id BIGINT NOT NULL, v BIGINT", "id", 3, inLake("1h")), safe},
	}
}

// checkBehindLake shows that each row that comes back is there once, before and after more is written and tiered, by which
// logs pass where the lake was.
func checkBehindLake(t *testing.T, s *server, tables []*behindLake) {
	t.Helper()
	const more, most = 1000, 1400
	for _, b := range tables {
		b.s = s
		once := func(what string, o obj, grown bool) {
			t.Helper()
			got, want := b.numbers(t, "id", o), b.back
			for id := range b.back {
				require.Equal(t, 1, got[id], "row %d of %s, %s", id, b.name, what)
			}
			if grown {
				want += most - more
				for id := int64(more); id < most; id++ {
					require.Equal(t, 1, got[id], "row %d of %s, %s", id, b.name, what)
				}
			}
			require.Len(t, got, int(want), "%s, %s", b.name, what)
		}
		once("restored", obj{}, false)
		var rows []string
		for id := more; id < most; id++ {
			rows = append(rows, fmt.Sprintf(`{"id":%d}`, id))
		}
		b.write(t, "["+strings.Join(rows, ",")+"]")
		once("written on", obj{}, true)
		require.Equal(t, "ok", b.tier(t)["state"], b.name)
		once("tiered on", obj{}, true)
		once("tiered on, in the lake", of("lake"), true)
		require.Equal(t, fmt.Sprint(b.back+most-more), b.count(t, ""))
	}
}

// A single node whose data directory is gone comes back from checkpoints that are older than its lake: nothing that the
// lake has of log tables is lost, no row is there twice, and the lake of keyed tables is what the tables are.
func TestRestoreBehindLake(t *testing.T) {
	t.Parallel()
	if clusterMode() {
		return // one node's; TestClusterRestore has this too
	}
	place := t.TempDir()
	lake := filepath.Join(place, "lake")
	flags := []string{"--remote-uri", "file://" + place + "/remote", "--lake-uri", "file://" + lake}
	s := newServer(t, flags...)
	db := newDB(t, s)
	tables := createBehindLake(t, s, db, "old", safeRows)
	for _, b := range tables {
		b.add(t, 0, safeRows)
	}
	require.Equal(t, 0, s.drain(t))
	require.NoError(t, s.launch())
	began := time.Now()
	for _, b := range tables {
		b.add(t, safeRows, tieredRows)
	}
	for _, b := range createBehindLake(t, s, db, "new", 0) {
		b.add(t, 0, tieredRows)
		tables = append(tables, b)
	}
	restore := func(dir string, more ...string) (string, error) {
		args := append([]string{"restore", "--from", flags[1], "--data-dir", dir}, flags[2:]...)
		out, err := exec.CommandContext(t.Context(), binaryPath, append(args, more...)...).CombinedOutput()
		return string(out), err
	}
	for end := time.Now().Add(40 * time.Second); ; time.Sleep(100 * time.Millisecond) { // the catalog is exported beside its changes
		out, err := restore(t.TempDir(), "--skip-lake")
		require.NoError(t, err, out)
		require.NotContains(t, out, "the lake has")
		if strings.Contains(out, "4 tables") {
			break
		}
		require.True(t, time.Now().Before(end), out)
	}
	s.kill()
	require.Less(t, time.Since(began), 55*time.Second, "a checkpoint may have come in between: the machine is too slow for this test")

	dir := filepath.Join(t.TempDir(), "restored")
	require.NoError(t, os.Rename(lake, lake+"-away"))
	require.NoError(t, os.WriteFile(lake, nil, 0o600))
	out, err := restore(dir)
	require.Error(t, err, "the lake is away")
	require.Contains(t, out, "--skip-lake")
	require.NoError(t, os.Remove(lake))
	require.NoError(t, os.Rename(lake+"-away", lake))
	out, err = restore(dir)
	require.NoError(t, err, out)
	require.Contains(t, out, "old_log: the lake has all rows up to offset")
	require.Contains(t, out, "old_keyed: the lake has changes that did not come back")
	require.Contains(t, out, "new_log: the lake has all rows up to offset")
	r := &server{dir: dir, flags: flags, log: &tailBuffer{}}
	r.begin(t)
	checkBehindLake(t, r, tables)
	r.kill()
	require.NoError(t, r.launch())
	tables[0].s = r
	require.Len(t, tables[0].numbers(t, "id", obj{}), tieredRows+400)
}

// A data directory that is put back from a copy is behind the lake in the same way: wal repair tells of it, and makes logs go
// on behind that.
func TestRepairBehindLake(t *testing.T) {
	t.Parallel()
	if clusterMode() {
		return // the logs of a cluster are not in its data directories
	}
	lake := "file://" + t.TempDir()
	s := newServer(t, "--lake-uri", lake)
	db := newDB(t, s)
	tables := createBehindLake(t, s, db, "old", safeRows)
	for _, b := range tables {
		b.add(t, 0, safeRows)
	}
	require.Equal(t, 0, s.drain(t))
	repair := func(more ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), binaryPath, append([]string{"wal", "repair", "--data-dir", s.dir, "--lake-uri", lake}, more...)...).CombinedOutput()
		return string(out), err
	}
	out, err := repair()
	require.NoError(t, err, out)
	require.Contains(t, out, "sound")
	kept := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.CopyFS(kept, os.DirFS(s.dir)))
	require.NoError(t, s.launch())
	for _, b := range tables {
		b.add(t, safeRows, tieredRows)
	}
	require.Equal(t, 0, s.drain(t))
	require.NoError(t, os.RemoveAll(s.dir))
	require.NoError(t, os.CopyFS(s.dir, os.DirFS(kept)))

	out, err = repair()
	require.Error(t, err)
	require.Contains(t, out, "the lake has records that the log does not have")
	require.NotContains(t, out, "cannot be read")
	require.Contains(t, out, "old_log: the lake has all rows up to offset")
	out, err = repair("--accept-loss")
	require.NoError(t, err, out)
	require.Contains(t, out, "old_keyed: the lake has changes that did not come back")
	out, err = repair()
	require.NoError(t, err, out)
	require.NoError(t, s.launch())
	checkBehindLake(t, s, tables)
}
