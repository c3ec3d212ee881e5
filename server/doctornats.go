package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/cluster"
	"github.com/millrace/millrace/errs"
)

const (
	subjectNATS = "nats"
	// natsTime is how long one server is given to let us in.
	natsTime = 4 * time.Second
)

// lookAtNATS reaches each address by itself, so that one of three that is away is seen, and
// asks one of them about all.
func (d *doctor) lookAtNATS(ctx context.Context) {
	if !d.s.clustered() {
		return
	}
	var conn *cluster.Conn
	for at := range strings.SplitSeq(d.s.NATSURL, ",") {
		if at = strings.TrimSpace(at); at == "" {
			continue
		}
		c, err := d.natsAt(ctx, at)
		switch {
		case err != nil && strings.Contains(err.Error(), "refuses us"):
			d.failed(subjectNATS, "user, password, credentials and certificates have to be those of the NATS servers (--nats-url, --nats-creds, --nats-ca, --nats-cert)", "%s: %v", withoutPasswords(at), err)
		case err != nil:
			d.failed(subjectNATS, "is it running there, and does the network let us through to that port?", "%s: %v", withoutPasswords(at), err)
		case conn == nil:
			conn = c
			defer conn.Close()
		default:
			c.Close()
		}
	}
	if conn == nil {
		return
	}
	demands := cluster.Demands{Insecure: d.s.InsecureNATS, SystemURLs: d.s.NATSSystemURL, SystemCredentials: d.s.NATSSystemCreds}
	seen, err := conn.Look(ctx, demands, d.now)
	if seen.RoundTrip > 0 {
		d.ok(subjectNATS, "%s, nats-server %s, %s, answers within %v", seen.Server, seen.Version, clusterOf(seen), round(seen.RoundTrip))
	}
	for _, c := range seen.Clocks {
		d.clock("NATS server "+c.Server, c.At.Add(-c.Unsure), c.At.Add(c.Unsure), c.Now, 0)
	}
	if err != nil {
		d.failed(subjectNATS, "", "%v", err)
	}
	size, err := sizeOf("log-max-size", d.s.LogMaxSize)
	if err != nil {
		d.failed(subjectNATS, "", "%v", err)
		return
	}
	demands.StoreBytes = size * int64(d.shards(seen))
	found, err := conn.Check(ctx, demands)
	for _, w := range found.Warnings {
		d.warn(subjectNATS, "", "%s", w)
	}
	if err != nil {
		advice := ""
		if errs.Is(err, errs.Unavailable) {
			advice = "JetStream has no leader, or does not answer: look at the servers' logs"
		}
		d.failed(subjectNATS, advice, "%v", err)
	} else if len(found.Warnings) == 0 {
		d.ok(subjectNATS, "JetStream is on, syncs each write, and has room for %d logs of %s, %d replicas each", d.shards(seen), d.s.LogMaxSize, found.Replicas)
	}
	d.lookAtStreams(seen, found.Replicas)
}

func (d *doctor) natsAt(ctx context.Context, at string) (*cluster.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, natsTime)
	defer cancel()
	return cluster.Connect(ctx, cluster.Options{
		URLs: at, Credentials: d.s.NATSCreds, CA: d.s.NATSCA, Cert: d.s.NATSCert, Key: d.s.NATSKey, Name: "millrace doctor", Logger: d.log,
	})
}

func clusterOf(s cluster.Seen) string {
	if s.Cluster == "" {
		return "by itself"
	}
	return "of cluster " + s.Cluster
}

// shards is how many logs there are or will be.
func (d *doctor) shards(seen cluster.Seen) int {
	n := 0
	for _, st := range seen.Streams {
		if strings.Contains(st.Name, "_wal_") && d.ours(st.Name) {
			n++
		}
	}
	if n == 0 {
		n = clusterShards
	}
	return max(n, d.s.Shards)
}

// ours says whether a stream is of the cluster whose data the directory has.
func (d *doctor) ours(stream string) bool {
	if stream == cluster.CatalogStream(d.s.ClusterName) {
		return true
	}
	return len(d.clusters) > 0 && len(d.clusters[0].id) > 8 && strings.Contains(stream, "mr_"+d.clusters[0].id[:8]+"_")
}

// lookAtStreams tells of streams without a leader, or with replicas that are away.
func (d *doctor) lookAtStreams(seen cluster.Seen, replicas int) {
	ours, full := 0, []string(nil)
	var leaderless, fewer []string
	away := map[string]int{}
	for _, st := range seen.Streams {
		if !d.ours(st.Name) {
			continue
		}
		ours++
		if st.Leader == "" {
			leaderless = append(leaderless, st.Name)
		}
		if st.Replicas < replicas {
			fewer = append(fewer, fmt.Sprintf("%s (%d)", st.Name, st.Replicas))
		}
		for _, r := range st.Away {
			name, _, _ := strings.Cut(r, " ")
			away[name]++
		}
		if st.MaxBytes > 0 && st.Bytes > st.MaxBytes/10*9 {
			full = append(full, fmt.Sprintf("%s has %s of %s", st.Name, bytesText(uint64(st.Bytes)), bytesText(uint64(st.MaxBytes))))
		}
	}
	some := func(list []string) string { return strings.Join(list[:min(len(list), 5)], ", ") }
	if len(leaderless) > 0 {
		d.failed(subjectNATS, "a stream has a leader when more than half of its servers are there: start them", "%d streams have no leader: %s", len(leaderless), some(leaderless))
	}
	if len(fewer) > 0 {
		d.failed(subjectNATS, "nats stream edit --replicas, or make the cluster anew", "%d streams have fewer than %d replicas: %s", len(fewer), replicas, some(fewer))
	}
	servers := make([]string, 0, len(away))
	for name, n := range away {
		servers = append(servers, fmt.Sprintf("%s (%d streams)", name, n))
	}
	slices.Sort(servers)
	if len(servers) > 0 {
		d.warn(subjectNATS, "start it, or let it catch up, before another one is stopped", "replicas are away or behind: %s", some(servers))
	}
	if len(full) > 0 {
		d.failed(subjectNATS, "checkpoints do not reach the object store, so the logs are not purged: see millrace status, and the alert MillraceUploadsLate", "%d logs are nearly full: %s", len(full), some(full))
	}
	if ours > 0 && len(leaderless)+len(fewer)+len(servers)+len(full) == 0 {
		d.ok(subjectNATS, "%d streams of the cluster, each with a leader and all its replicas", ours)
	}
}
