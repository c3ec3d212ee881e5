package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A cluster of which all processes were killed and all three nats-servers lost their disks comes back from its object
// store by one command: rows and keys as of the checkpoints, each once, and what was written after them as far as it was
// in one; changelogs go on where they ended, and what the lake had more of is as it was (log tables) or as the
// keys are. A restore that is killed is begun again. Then a stream is lost alone, and
// wal repair tells of it, and brings its shard back.
func TestClusterRestore(t *testing.T) {
	if testing.Short() || clusterMode() {
		return // it has a cluster of its own
	}
	f := newFleet(t)
	front := func() *server { return f.fronts[0] }
	db := newDB(t, front())
	log := create(t, front(), db, "log", "id BIGINT NOT NULL, v STRING", "", 6)
	keyed := create(t, front(), db, "keyed", "id BIGINT NOT NULL, v BIGINT NOT NULL", "id", 6)
	write := func(from, to int) {
		for i := from; i < to; i += 10 {
			var rows, keys []string
			for n := i; n < i+10; n++ {
				rows = append(rows, fmt.Sprintf(`{"id":%d,"v":"x%d"}`, n, n))
				keys = append(keys, fmt.Sprintf(`{"id":%d,"v":%d}`, n%50, n))
			}
			log.write(t, "["+strings.Join(rows, ",")+"]")
			keyed.write(t, "["+strings.Join(keys, ",")+"]")
		}
	}
	stopAll := func(s ...*server) {
		for _, s := range s {
			f.leave(t, s)
		}
	}
	begin := func() {
		for _, s := range f.all() {
			f.back(t, s)
		}
		f.settle(t, patience)
	}
	killAll := func() {
		for _, s := range f.all() {
			s.kill()
		}
	}
	tiered := createBehindLake(t, front(), db, "tiered", safeRows)
	const safe, most = 400, 700 // rows of the log that are surely in a checkpoint, and all
	write(0, safe)
	for _, b := range tiered {
		b.add(t, 0, safeRows)
	}
	stopAll(f.all()...) // the last worker's checkpoints have everything
	begin()
	ends := offsetsAt(t, keyed, "latest")
	write(safe, most)
	for _, b := range tiered {
		b.s = front()
		b.add(t, safeRows, tieredRows) // the lake has what no checkpoint may have
	}
	killAll()
	for i := range f.nats.Len() {
		f.nats.Server(i).Kill()
		require.NoError(t, f.nats.Server(i).RemoveStore())
	}
	for i := range f.nats.Len() {
		require.NoError(t, f.nats.Server(i).Start())
	}
	require.NoError(t, f.nats.Ready(t.Context()))
	require.ErrorContains(t, f.workers[0].launchAlone(), "millrace restore")

	place := filepath.Join(t.TempDir(), "restore")
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), binaryPath, append(append(args, "--data-dir", place), f.common...)...)
		cmd.Env = append(bareEnviron(), f.env...)
		return cmd
	}
	for _, after := range []time.Duration{7 * time.Second, 8 * time.Second} { // it looks for processes for 6 s
		cmd := command("restore")
		require.NoError(t, cmd.Start())
		time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // it may have been quicker
	}
	if out, err := command("restore").CombinedOutput(); err == nil {
		require.Contains(t, string(out), "4 tables, 6 shards")
		require.Equal(t, fleetShards, strings.Count(string(out), " ago\n"), "%s", out)
		t.Logf("%s", out)
	} else {
		require.Contains(t, string(out), "has a catalog", "the one before was through")
	}
	begin()
	out, err := command("restore").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "has a catalog")

	check := func(from, to int) {
		seen := log.numbers(t, "id", obj{})
		for id := range int64(to) {
			require.LessOrEqual(t, seen[id], 1, "row %d is there more than once", id)
			require.True(t, seen[id] == 1 || id >= safe && id < int64(from), "row %d is lost", id)
		}
		values := keyed.scan(t, nil)
		require.Len(t, values, 50)
		for _, line := range values {
			var row struct{ ID, V int64 }
			require.NoError(t, json.Unmarshal([]byte(line), &row))
			require.Equal(t, row.ID, row.V%50)
			require.GreaterOrEqual(t, row.V, int64(safe-50), "key %d has an older value than its checkpoint", row.ID)
		}
	}
	check(most, most)
	for bucket, end := range offsetsAt(t, keyed, "latest") {
		require.GreaterOrEqual(t, end, ends[bucket])
	}
	write(most, most+50)
	check(most, most+50)
	checkBehindLake(t, front(), tiered[:1])
	changes := tiered[1]
	changes.s = front()
	changes.add(t, 1000, 1400)
	require.Equal(t, changes.sorted(t, obj{}), changes.sorted(t, of("lake")))
	require.GreaterOrEqual(t, len(changes.numbers(t, "id", of("lake"))), safeRows+400)

	// One stream goes, with rows that no checkpoint has.
	stopAll(f.all()...)
	out, err = command("wal", "repair").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "sound")
	f.loseStream(t, 2)
	out, err = command("wal", "repair").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "shard 2: ")
	require.Contains(t, string(out), "--accept-loss")
	require.NotContains(t, string(out), "shard 1: ")
	out, err = command("wal", "repair", "--accept-loss").CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
	begin()
	check(most, most+50) // the last checkpoints had them
	write(most+50, most+60)
	check(most, most+60)
}

// loseStream removes the stream of a shard's log from NATS.
func (f *fleet) loseStream(t *testing.T, shard int) {
	t.Helper()
	gone, err := f.nats.RemoveStreams(t.Context(), func(name string) bool { return strings.HasSuffix(name, fmt.Sprintf("_wal_%d", shard)) })
	require.NoError(t, err)
	require.Equal(t, 1, gone)
}

// offsetsAt are the offsets of a position, by bucket.
func offsetsAt(t *testing.T, tb table, position string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	require.NoError(t, json.Unmarshal([]byte(tb.at(t, position)), &out))
	return out
}
