package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/auth/token"
	"github.com/millrace/millrace/cluster"
	"github.com/millrace/millrace/cluster/natstest"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/objstore/objstoretest"
)

// diagnose runs a doctor.
func diagnose(t *testing.T, o DoctorOptions) []Finding {
	t.Helper()
	o.Version = "test"
	return Doctor(t.Context(), o)
}

func findingsText(found []Finding) string {
	b, _ := json.MarshalIndent(found, "", " ")
	return string(b)
}

// requireFinding finds one of a state whose text has all of the words.
func requireFinding(t *testing.T, found []Finding, state FindingState, subject string, words ...string) {
	t.Helper()
	for _, f := range found {
		if f.State != state || f.Subject != subject {
			continue
		}
		all := f.Found + " → " + f.Advice
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(all, w) }) {
			return
		}
	}
	t.Fatalf("no %s of %s with %q:\n%s", state, subject, words, findingsText(found))
}

func requireNone(t *testing.T, found []Finding, states ...FindingState) {
	t.Helper()
	for _, f := range found {
		if f.Subject == subjectDisk { // which is the machine's that tests run on
			continue
		}
		require.NotContains(t, states, f.State, "%s: %s", f.Subject, f.Found)
	}
}

// tree is every file of a directory with its content, but for what a running server writes.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			out[p] = "folder"
			return err
		}
		b, err := os.ReadFile(p)
		out[p] = string(b)
		return err
	}))
	return out
}

// A directory that is new, one that a server runs on, and one that a server ran on are all
// well, and stay as they are, byte by byte.
func TestDoctorOfOneNode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s := testSettings(t, dir)
	found := diagnose(t, DoctorOptions{Settings: s})
	requireNone(t, found, FindingFailed)
	requireFinding(t, found, FindingOK, "data directory", "the first start makes it")
	requireFinding(t, found, FindingOK, "disk", "fsync")
	require.NoDirExists(t, dir)

	r := startServer(t, dir)
	s.HTTPAddr = r.addr.HTTP
	found = diagnose(t, DoctorOptions{Settings: s})
	requireNone(t, found, FindingFailed)
	requireFinding(t, found, FindingOK, "server", "takes work", fmt.Sprint(os.Getpid()))
	requireFinding(t, found, FindingOK, "server", "release test", "4 shards")
	requireFinding(t, found, FindingOK, "server", "no alarm")
	requireFinding(t, found, FindingOK, "ports", s.HTTPAddr+" is the running server's")
	requireFinding(t, found, FindingOK, "cluster", "the data directory, the running server")
	requireFinding(t, Doctor(t.Context(), DoctorOptions{Settings: s, Version: "other"}), FindingWarning, "server", "release test", "other")
	s.HTTPAddr = "127.0.0.1:" + freePort(t)
	requireFinding(t, diagnose(t, DoctorOptions{Settings: s}), FindingWarning, "ports", "other settings")
	r.stop(t)

	before := tree(t, dir)
	found = diagnose(t, DoctorOptions{Settings: s})
	requireNone(t, found, FindingFailed)
	requireFinding(t, found, FindingOK, "server", "none runs")
	require.Equal(t, before, tree(t, dir))
	startServer(t, dir).stop(t) // and a server starts on it
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

// What is broken on the machine itself is told, with what to do.
func TestDoctorOfBrokenMachine(t *testing.T) {
	dir := t.TempDir()
	startServer(t, dir).stop(t)
	good, other := newPair(t, "good"), newPair(t, "other")
	place := t.TempDir()
	good.write(t, place)
	cert, key := filepath.Join(place, "cert.pem"), filepath.Join(place, "key.pem")
	wrongKey := filepath.Join(place, "other.pem")
	require.NoError(t, os.WriteFile(wrongKey, other.key, 0o600))
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer busy.Close()
	keys := httptest.NewServer(http.NotFoundHandler())
	defer keys.Close()
	pipe := filepath.Join(place, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	encrypted := func(s *Settings) { s.TLSCert, s.TLSKey = cert, key }
	for name, c := range map[string]struct {
		set     func(*Settings)
		off     time.Duration // of our clock
		break_  func()
		mend    func()
		state   FindingState
		subject string
		words   []string
	}{
		"mode":        {break_: func() { require.NoError(t, os.Chmod(dir, 0o755)) }, mend: func() { require.NoError(t, os.Chmod(dir, 0o700)) }, state: FindingWarning, subject: "data directory", words: []string{"0755", "chmod 700"}},
		"open to all": {break_: func() { require.NoError(t, os.Chmod(dir, 0o777)) }, mend: func() { require.NoError(t, os.Chmod(dir, 0o700)) }, state: FindingFailed, subject: "data directory", words: []string{"every user", "chmod 700"}},
		"a file":      {set: func(s *Settings) { s.DataDir = cert }, state: FindingFailed, subject: "data directory", words: []string{"not a folder"}},
		"other owner": {break_: func() { require.NoError(t, os.Chown(filepath.Join(dir, clusterFile), 12345, -1)) }, mend: func() { require.NoError(t, os.Chown(filepath.Join(dir, clusterFile), os.Geteuid(), -1)) }, state: FindingFailed, subject: "data directory", words: []string{"user 12345", "chown -R"}},
		"clock back":  {off: -time.Hour, state: FindingFailed, subject: "clocks", words: []string{"gone back"}},
		"cluster.json": {
			break_: func() {
				require.NoError(t, os.Rename(filepath.Join(dir, clusterFile), filepath.Join(dir, "kept")))
				require.NoError(t, os.WriteFile(filepath.Join(dir, clusterFile), []byte("{"), 0o600))
			},
			mend: func() { require.NoError(t, os.Rename(filepath.Join(dir, "kept"), filepath.Join(dir, clusterFile))) }, state: FindingFailed, subject: "data directory", words: []string{"damaged"},
		},
		"development key": {set: func(s *Settings) { s.AuthJWKS = devKeys }, break_: func() { require.NoError(t, os.Chmod(token.DevKeyPath(dir), 0o644)) }, mend: func() { require.NoError(t, os.Chmod(token.DevKeyPath(dir), 0o600)) }, state: FindingFailed, subject: "secrets", words: []string{"0644", "chmod 600"}},
		"no credentials":  {set: func(s *Settings) { s.NATSCreds = filepath.Join(place, "absent") }, state: FindingFailed, subject: "secrets", words: []string{"nats-creds", "there is no file"}},
		"port":            {set: func(s *Settings) { s.FlightAddr = busy.Addr().String() }, state: FindingFailed, subject: "ports", words: []string{"flight-addr", "another program", "ss -ltnp"}},
		"no such address": {set: func(s *Settings) { s.HTTPAddr = "192.0.2.1:8080" }, state: FindingFailed, subject: "ports", words: []string{"no address of this machine"}},
		"key":             {set: func(s *Settings) { s.TLSCert, s.TLSKey = cert, wrongKey }, state: FindingFailed, subject: "tls", words: []string{"not the key"}},
		"expired":         {set: encrypted, off: 2000 * time.Hour, state: FindingFailed, subject: "tls", words: []string{"expired"}},
		"expires":         {set: encrypted, off: 500 * time.Hour, state: FindingWarning, subject: "tls", words: []string{"20 days from now"}},
		"other name":      {set: func(s *Settings) { encrypted(s); s.AdvertiseFlight = "db.example.com:8815" }, state: FindingWarning, subject: "tls", words: []string{"db.example.com", "advertise-flight"}},
		"no keys":         {set: func(s *Settings) { s.AuthJWKS = keys.URL + "/keys" }, state: FindingFailed, subject: "keys of tokens", words: []string{"404"}},
		"unsafe":          {set: func(s *Settings) { s.Insecure = true }, state: FindingWarning, subject: "settings", words: []string{"without authentication", "--auth-jwks"}},
		"few files":       {set: func(s *Settings) { s.MaxConnections = 1 << 40 }, state: FindingWarning, subject: "open files", words: []string{"LimitNOFILE"}},
		"audit folder":    {set: func(s *Settings) { s.AuditLog = filepath.Join(place, "absent", "a.log") }, state: FindingFailed, subject: "audit log", words: []string{"no such file", "make the folder"}},
		"audit a folder":  {set: func(s *Settings) { s.AuditLog = place }, state: FindingFailed, subject: "audit log", words: []string{"is a directory"}},
		"audit pipe":      {set: func(s *Settings) { s.AuditLog = pipe }, state: FindingOK, subject: "audit log", words: []string{"while somebody reads it"}},
		"audit table":     {set: func(s *Settings) { s.AuditTable = "a" }, state: FindingFailed, subject: "audit log", words: []string{"audit-table"}},
		"audit":           {set: func(s *Settings) { s.AuditLog = filepath.Join(place, "a.log") }, state: FindingOK, subject: "audit log", words: []string{"first start makes it"}},
		"audit again":     {set: func(s *Settings) { s.AuditLog = cert }, state: FindingOK, subject: "audit log", words: []string{"can be written"}},
		"remote folder":   {set: func(s *Settings) { s.RemoteURI = "file://" + cert + "/x" }, state: FindingFailed, subject: "remote-uri"},
	} {
		if name == "other owner" && os.Geteuid() != 0 { // only root gives files away
			continue
		}
		s := testSettings(t, dir)
		if c.set != nil {
			c.set(s)
		}
		if c.break_ != nil {
			c.break_()
		}
		found := diagnose(t, DoctorOptions{Settings: s, Clock: func() time.Time { return time.Now().Add(c.off) }})
		if c.mend != nil {
			c.mend()
		}
		t.Log(name)
		requireFinding(t, found, c.state, c.subject, c.words...)
	}
	requireNone(t, diagnose(t, DoctorOptions{Settings: testSettings(t, dir)}), FindingFailed)
	require.NoFileExists(t, filepath.Join(place, "a.log"))
}

// The keys of an identity provider, and what it says of itself.
func TestDoctorOfKeys(t *testing.T) {
	issuer := ""
	mux := http.NewServeMux()
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","kid":"one","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},{"kty":"RSA","use":"enc","kid":"two","n":"AQ","e":"AQAB"}]}`)
	})
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, issuer, issuer+"/keys")
	})
	provider := httptest.NewServer(mux)
	defer provider.Close()
	issuer = provider.URL
	s := testSettings(t, filepath.Join(t.TempDir(), "data"))
	s.AuthJWKS, s.AuthIssuer, s.AuthAudience = issuer+"/keys", issuer, "millrace"
	found := diagnose(t, DoctorOptions{Settings: s})
	requireNone(t, found, FindingFailed, FindingSkipped)
	requireFinding(t, found, FindingOK, "keys of tokens", "one (EdDSA)")
	requireFinding(t, found, FindingOK, "keys of tokens", "left out", "not for signatures")
	requireFinding(t, found, FindingOK, "clocks", "the identity provider")
	requireFinding(t, diagnose(t, DoctorOptions{Settings: s, Clock: func() time.Time { return time.Now().Add(time.Hour) }}), FindingFailed, "clocks", "the identity provider", "behind", "1h0m")

	issuer = "http://127.0.0.1:1"
	requireFinding(t, diagnose(t, DoctorOptions{Settings: s}), FindingFailed, "keys of tokens", "calls itself http://127.0.0.1:1")
	s.AuthIssuer = provider.URL + "/"
	issuer = s.AuthIssuer
	requireFinding(t, diagnose(t, DoctorOptions{Settings: s}), FindingWarning, "keys of tokens", "its keys are at")
}

// A real S3 server: well, and with what goes wrong with such.
func TestDoctorOfObjectStore(t *testing.T) {
	g := objstoretest.StartGateway(t)
	t.Setenv("AWS_ACCESS_KEY_ID", g.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", g.SecretKey)
	s := testSettings(t, filepath.Join(t.TempDir(), "data"))
	s.S3Endpoint, s.S3Region, s.S3PathStyle = g.Endpoint, objstoretest.Region, true
	s.RemoteURI, s.LakeURI = g.URI("remote"), g.URI("lake")
	found := diagnose(t, DoctorOptions{Settings: s})
	requireNone(t, found, FindingFailed, FindingSkipped)
	for _, name := range []string{"remote-uri", "lake-uri"} {
		requireFinding(t, found, FindingOK, "clocks", name)
	}
	require.Empty(t, objects(t, g), "what was written to try is gone")
	off := func() time.Time { return time.Now().Add(-time.Hour) }
	requireFinding(t, diagnose(t, DoctorOptions{Settings: s, Clock: off}), FindingFailed, "clocks", "remote-uri", "ahead")

	s.RemoteURI = "s3://absent/remote"
	requireFinding(t, diagnose(t, DoctorOptions{Settings: s}), FindingFailed, "remote-uri", "no such bucket", "make the bucket")
	s.RemoteURI = g.URI("remote")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	requireFinding(t, diagnose(t, DoctorOptions{Settings: s}), FindingFailed, "remote-uri", "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY")
	t.Setenv("AWS_ACCESS_KEY_ID", "nobody")
	requireFinding(t, diagnose(t, DoctorOptions{Settings: s}), FindingFailed, "lake-uri", "access key", "AWS_ACCESS_KEY_ID")
	s.S3Endpoint = "http://127.0.0.1:" + freePort(t)
	requireFinding(t, diagnose(t, DoctorOptions{Settings: s}), FindingFailed, "lake-uri", "connection refused", "--s3-endpoint")
}

// A cluster's NATS: well; without sync, with too little room, with another user; one of its
// addresses away; places of two clusters.
func TestDoctorOfCluster(t *testing.T) {
	c := &smallCluster{nats: natstest.StartT(t, 1), place: t.TempDir()}
	dir := t.TempDir()
	r := startServerWith(t, dir, c.set(dir))
	require.Eventually(t, func() bool {
		return strings.Count(r.call(t, "GET", "/v1/cluster", ""), `"state":"open"`) == 2
	}, time.Minute, 10*time.Millisecond)
	s := c.settings(t, dir)
	s.NATSSystemURL = c.nats.SystemURLs()
	s.HTTPAddr = r.addr.HTTP
	found := diagnose(t, DoctorOptions{Settings: s})
	requireNone(t, found, FindingFailed, FindingSkipped)
	requireFinding(t, found, FindingOK, "nats", "4 streams of the cluster")
	requireFinding(t, found, FindingWarning, "nats", "1 replica(s)", "run three")
	requireFinding(t, found, FindingOK, "clocks", "NATS server", "process")
	requireFinding(t, found, FindingOK, "cluster members", "1 of 1")
	requireFinding(t, found, FindingOK, "cluster", "the data directory, remote-uri, the running server")
	requireFinding(t, diagnose(t, DoctorOptions{Settings: s, Clock: func() time.Time { return time.Now().Add(time.Hour) }}), FindingFailed, "clocks", "NATS server", "behind", "one source of time")
	s.NATSSystemURL = ""
	requireFinding(t, diagnose(t, DoctorOptions{Settings: s, Clock: func() time.Time { return time.Now().Add(time.Hour) }}), FindingFailed, "clocks", "NATS server", "behind")
	requireFinding(t, diagnose(t, DoctorOptions{Settings: s}), FindingWarning, "nats", "sync_interval")

	well := s.NATSURL
	s.NATSURL = well + ",nats://mr:mr@127.0.0.1:" + freePort(t)
	found = diagnose(t, DoctorOptions{Settings: s})
	requireFinding(t, found, FindingFailed, "nats", "cannot be reached")
	requireFinding(t, found, FindingOK, "nats", "4 streams")
	s.NATSURL = strings.Replace(well, "mr:mr", "mr:secret", 1)
	found = diagnose(t, DoctorOptions{Settings: s})
	requireFinding(t, found, FindingFailed, "nats", "refuses us", "--nats-creds")
	require.NotContains(t, findingsText(found), "secret@")
	s.NATSURL = well

	other := t.TempDir()
	require.NoError(t, writeJSON(filepath.Join(other, clusterFile), clusterRecord{Format: clusterFormat, ClusterID: strings.Repeat("ab", 16)}))
	s.DataDir, s.HTTPAddr = other, "127.0.0.1:0"
	requireFinding(t, diagnose(t, DoctorOptions{Settings: s}), FindingFailed, "cluster", "remote-uri", "abab")
	r.stop(t)
}

// objects are the keys of a bucket.
func objects(t *testing.T, g *objstoretest.Server) []string {
	t.Helper()
	got, err := g.Client().ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &g.Bucket})
	require.NoError(t, err)
	var out []string
	for _, o := range got.Contents {
		out = append(out, *o.Key)
	}
	return out
}

// lying is a store that is wrong in one way.
type lying struct {
	objstore.Store
	create func() error
	get    []byte
	keeps  bool // what was removed
	hides  bool // what was written, from lists
}

func (l *lying) Create(ctx context.Context, key string, body []byte) error {
	err := l.Store.Create(ctx, key, body)
	if err != nil && l.create != nil {
		return l.create()
	}
	return err
}

func (l *lying) Get(ctx context.Context, key string) ([]byte, error) {
	if l.get != nil {
		return l.get, nil
	}
	return l.Store.Get(ctx, key)
}

func (l *lying) List(ctx context.Context, prefix string, give func(objstore.Info) error) error {
	if l.hides {
		return nil
	}
	return l.Store.List(ctx, prefix, give)
}

func (l *lying) Remove(ctx context.Context, keys ...string) error {
	if l.keeps {
		return nil
	}
	return l.Store.Remove(ctx, keys...)
}

// A store that does not do what it says is found out; and one that does is left as it was.
func TestDoctorOfLyingStore(t *testing.T) {
	for says, store := range map[string]*lying{
		"":                       {},
		"both believe":           {create: func() error { return nil }},
		"other bytes":            {get: []byte("others")},
		"is not listed":          {hides: true},
		"it is still there":      {keeps: true},
		"no space left on store": {create: func() error { return errors.New("no space left on store") }},
	} {
		dir := t.TempDir()
		var err error
		store.Store, err = objstore.Open(t.Context(), "file://"+dir, objstore.Options{})
		require.NoError(t, err)
		d := &doctor{now: time.Now}
		d.tryStore(t.Context(), "lake-uri", store)
		require.Len(t, d.found, 1)
		if says == "" {
			require.NotEqual(t, FindingFailed, d.found[0].State)
			require.Empty(t, tree(t, dir)[filepath.Join(dir, scratch)])
			continue
		}
		requireFinding(t, d.found, FindingFailed, "lake-uri", says)
	}
}

// Streams of the cluster that are not as they should be; those of other clusters are not ours.
func TestDoctorOfStreams(t *testing.T) {
	id := strings.Repeat("ab", 16)
	d := &doctor{s: &Settings{ClusterName: "millrace", LogMaxSize: "8GiB"}, clusters: []clusterSeen{{"x", id}}}
	wal := func(n int, change func(*cluster.StreamSeen)) cluster.StreamSeen {
		st := cluster.StreamSeen{Name: fmt.Sprintf("mr_abababab_wal_%d", n), Leader: "n1", Replicas: 3, MaxBytes: 1000, Bytes: 10}
		change(&st)
		return st
	}
	seen := cluster.Seen{Streams: []cluster.StreamSeen{
		wal(0, func(*cluster.StreamSeen) {}),
		wal(1, func(s *cluster.StreamSeen) { s.Leader = "" }),
		wal(2, func(s *cluster.StreamSeen) { s.Replicas = 1 }),
		wal(3, func(s *cluster.StreamSeen) { s.Away = []string{"n2 (offline)"} }),
		wal(4, func(s *cluster.StreamSeen) { s.Bytes = 950 }),
		{Name: "mr_cdcdcdcd_wal_0", Replicas: 1},
	}}
	require.Equal(t, 16, d.shards(cluster.Seen{}))
	require.Equal(t, 5, d.shards(seen))
	d.lookAtStreams(seen, 3)
	requireFinding(t, d.found, FindingFailed, "nats", "1 streams have no leader: mr_abababab_wal_1")
	requireFinding(t, d.found, FindingFailed, "nats", "1 streams have fewer than 3 replicas", "mr_abababab_wal_2 (1)")
	requireFinding(t, d.found, FindingWarning, "nats", "n2 (1 streams)")
	requireFinding(t, d.found, FindingFailed, "nats", "nearly full: mr_abababab_wal_4", "MillraceUploadsLate")
	require.NotContains(t, findingsText(d.found), "cdcd")
	d.found = nil
	d.lookAtStreams(cluster.Seen{Streams: seen.Streams[:1]}, 3)
	requireFinding(t, d.found, FindingOK, "nats", "1 streams")
}
