package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/objstore/objstoretest"
)

// A server that has ended in order, and whose data directory is gone, comes back from the object store with everything:
// tables, rows, offsets, times; on versitygw. Another cluster is refused its place there. What was restored goes on in
// the same place.
func TestRestore(t *testing.T) {
	t.Parallel()
	if clusterMode() {
		return // one node's; a cluster has a restore of its own
	}
	store := objstoretest.StartGateway(t)
	flags := []string{"--remote-uri", store.URI("checkpoints"), "--s3-endpoint", store.Endpoint, "--s3-region", objstoretest.Region, "--s3-path-style"}
	env := []string{"AWS_ACCESS_KEY_ID=" + store.AccessKey, "AWS_SECRET_ACCESS_KEY=" + store.SecretKey}
	begin := func(dir string) *server {
		s := &server{dir: dir, flags: flags, env: env, log: &tailBuffer{}}
		s.begin(t)
		return s
	}
	s := begin(t.TempDir())
	db := newDB(t, s)
	log := create(t, s, db, "log", "id BIGINT, v STRING", "", 3, obj{"properties": obj{"table.log.local-ttl": "0"}})
	keyed := create(t, s, db, "keyed", "id BIGINT, v STRING", "id", 3)
	for i := range 40 {
		log.write(t, fmt.Sprintf(`[{"id":%d,"v":"x%d"}]`, i, i))
		keyed.write(t, fmt.Sprintf(`[{"id":%d,"v":"y%d"}]`, i%7, i))
	}
	keyed.write(t, `[{"id":3}]`, `"mode":"delete"`)
	type picture struct {
		state   []string
		changes []change
		offsets string
	}
	look := func(s *server) picture {
		l, k := log, keyed
		l.s, k.s = s, s
		return picture{state: k.scan(t, nil), changes: append(l.allChanges(t, "earliest"), k.allChanges(t, "earliest")...), offsets: l.at(t, "latest") + k.at(t, "latest")}
	}
	before := look(s)
	require.Equal(t, 0, s.drain(t))

	dir := filepath.Join(t.TempDir(), "restored")
	restore := exec.CommandContext(t.Context(), binaryPath, append([]string{"restore", "--from", store.URI("checkpoints"), "--data-dir", dir}, flags[2:]...)...)
	restore.Env = append(bareEnviron(), env...)
	out, err := restore.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "2 tables")
	r := begin(dir)
	require.Equal(t, before, look(r))
	l := log
	l.s = r
	l.write(t, `[{"id":1000,"v":"after"}]`)
	after := look(r)
	require.Equal(t, 0, r.drain(t))
	require.NoError(t, r.launch())
	require.Equal(t, after, look(r))

	// A stranger takes writes, and does not touch what is there.
	other := &server{dir: t.TempDir(), flags: flags, env: env, log: &tailBuffer{}}
	require.ErrorContains(t, other.launch(), "remote-uri")
}
