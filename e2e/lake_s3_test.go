package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/objstore/objstoretest"
)

// keysBelow are the keys of a store's bucket that begin so, as a stock client lists them.
func keysBelow(t testing.TB, store *objstoretest.Server, prefix string) (keys []string) {
	t.Helper()
	pages := s3.NewListObjectsV2Paginator(store.Client(), &s3.ListObjectsV2Input{Bucket: &store.Bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		require.NoError(t, err)
		for _, o := range page.Contents {
			keys = append(keys, *o.Key)
		}
	}
	return keys
}

// The lake in S3: a keyed table in partitions with changes and deletes over several rounds and a restart, a log table
// whose log lets go of what is tiered, each tier what it should have; a partition that is dropped goes from the lake,
// and of a table that is purged no object is left.
func TestLakeInS3(t *testing.T) {
	t.Parallel()
	store := objstoretest.StartGateway(t)
	s := newServerOnS3(t, store)
	db := newDB(t, s)
	log := create(t, s, db, "events", "n BIGINT, v STRING", "", 4, inLake("1h", "table.log.ttl", "200ms"))
	keyed := create(t, s, db, "state", "day STRING, n BIGINT, v STRING", "day,n", 3, obj{"partition_by": []string{"day"}}, inLake("1h"))
	folder := func(tb table) string {
		return strings.TrimPrefix(fmt.Sprint(tb.lake(t)["location"]), "s3://"+store.Bucket+"/") + "/"
	}
	var events []string
	state := map[string]string{}
	current := func() []string {
		out := []string{}
		for _, row := range state {
			out = append(out, row)
		}
		slices.Sort(out)
		return out
	}
	for round := range 4 {
		var rows, upserts, deletes []string
		for i := range 300 {
			n := 300*round + i
			rows = append(rows, fmt.Sprintf(`{"n":%d,"v":"%d"}`, n, n%7))
			key := fmt.Sprintf(`"day":"d%d","n":%d`, i%2, n%400)
			if state[key] = fmt.Sprintf(`{%s,"v":"%d"}`, key, n); i%5 > 0 {
				upserts = append(upserts, state[key])
				continue
			}
			deletes = append(deletes, "{"+key+"}")
			delete(state, key)
		}
		log.write(t, "["+strings.Join(rows, ",")+"]")
		events = append(events, rows...)
		slices.Sort(events)
		keyed.write(t, "["+strings.Join(upserts, ",")+"]")
		keyed.write(t, "["+strings.Join(deletes, ",")+"]", `"mode":"delete"`)
		for _, tier := range []string{"union", "hot"} {
			require.Equal(t, current(), keyed.sorted(t, of(tier)), tier)
		}
		require.Equal(t, events, log.sorted(t, obj{}))
		if round == 2 {
			s.kill()
			s.restart(t)
		}
		log.tier(t)
		keyed.tier(t)
		for _, tier := range []string{"union", "lake"} {
			require.Equal(t, events, log.sorted(t, of(tier)), tier)
			require.Equal(t, current(), keyed.sorted(t, of(tier)), tier)
		}
		require.Eventually(t, func() bool { return len(log.scan(t, of("hot"))) == 0 }, patience, 50*time.Millisecond)
	}
	require.Equal(t, fmt.Sprint(len(events)), log.suffixed("$lake").count(t, ""))
	require.Contains(t, s.cliOK(t, "lake", "status", log.full()), "state:    ok")

	for _, tb := range []table{log, keyed} {
		require.NotEmpty(t, keysBelow(t, store, folder(tb)+"metadata/"))
		require.NotEmpty(t, keysBelow(t, store, folder(tb)+"data/"))
	}
	s.ok(t, "DELETE", keyed.path()+"/partitions?name=day%3Dd0", nil)
	for key := range state {
		if strings.HasPrefix(key, `"day":"d0"`) {
			delete(state, key)
		}
	}
	for _, tier := range []string{"union", "hot", "lake"} {
		require.Equal(t, current(), keyed.sorted(t, of(tier)), tier)
	}
	gone, kept := folder(keyed), folder(log)
	s.ok(t, "DELETE", keyed.path()+"?purge=true", nil)
	require.Empty(t, keysBelow(t, store, gone))
	objects := keysBelow(t, store, kept)
	s.ok(t, "DELETE", log.path(), nil)
	require.Equal(t, objects, keysBelow(t, store, kept))
}
