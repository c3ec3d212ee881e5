package cluster_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/cluster"
	"github.com/millrace/millrace/cluster/natstest"
	"github.com/millrace/millrace/errs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t *testing.T, urls string) *cluster.Conn {
	t.Helper()
	c, err := cluster.Connect(t.Context(), cluster.Options{URLs: urls, Name: "test"})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestNames(t *testing.T) {
	n := cluster.NamesOf([16]byte{0xab, 0xcd, 0, 1, 2})
	require.Equal(t, "mr_abcd0001_wal_7", n.LogStream(7))
	require.Equal(t, "mr.abcd0001.wal.7", n.LogSubject(7))
	require.Equal(t, "mr.abcd0001.shard.7", n.ShardSubject(7))
	require.Equal(t, "mr.abcd0001.all.tiered", n.AllSubject("tiered"))
	require.Equal(t, "mr.abcd0001.catalog", n.CatalogSubject())
	require.Equal(t, "mr_abcd0001_keys", n.KeysBucket())
	require.Equal(t, "mr_millrace_catalog", cluster.CatalogStream(cluster.DefaultName))
	for _, ok := range []string{"a", "millrace", "x_1-y", strings.Repeat("a", 32)} {
		require.NoError(t, cluster.CheckName(ok))
	}
	for _, bad := range []string{"", "A", "a.b", "a*", "a b", ">", "é", strings.Repeat("a", 33)} {
		require.Equal(t, errs.InvalidName, errs.CodeOf(cluster.CheckName(bad)), bad)
	}
}

// A request ends when its connection does, long before its time is out; the connection
// comes back by itself, and nothing that was asked for in between is sent then.
func TestConnectionLost(t *testing.T) {
	s := natstest.StartT(t, 1)
	c := connect(t, s.URLs())
	sub, err := c.NATS().SubscribeSync("asked")
	require.NoError(t, err)
	require.NoError(t, c.NATS().Flush())

	ctx, cancel := c.Request(t.Context(), time.Hour)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := c.NATS().RequestWithContext(ctx, "asked", []byte("1"))
		done <- err
	}()
	_, err = sub.NextMsg(time.Minute)
	require.NoError(t, err)
	s.Server(0).Kill()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Error(t, c.NATS().Publish("asked", []byte("2")))
	ctx, cancel = c.Request(t.Context(), time.Hour)
	defer cancel()
	require.Error(t, ctx.Err(), "there is no connection")

	require.NoError(t, s.Server(0).Start())
	require.NoError(t, s.Ready(t.Context()))
	require.Eventually(t, c.NATS().IsConnected, time.Minute, 5*time.Millisecond)
	require.Eventually(t, func() bool {
		ctx, cancel := c.Request(t.Context(), time.Hour)
		defer cancel()
		return ctx.Err() == nil
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, c.NATS().Publish("asked", []byte("3")))
	msg, err := sub.NextMsg(time.Minute)
	require.NoError(t, err)
	require.Equal(t, "3", string(msg.Data))
}

// What cannot work is said at once; servers that are not there are waited for.
func TestRefused(t *testing.T) {
	s := natstest.StartT(t, 1)
	_, err := cluster.Connect(t.Context(), cluster.Options{URLs: "nats://mr:wrong@" + s.Server(0).Address()})
	require.Equal(t, errs.Unavailable, errs.CodeOf(err))
	require.ErrorContains(t, err, "refuses us")
	_, err = cluster.Connect(t.Context(), cluster.Options{URLs: s.URLs(), Credentials: filepath.Join(t.TempDir(), "absent")})
	require.ErrorContains(t, err, "no such file")
	_, err = cluster.Connect(t.Context(), cluster.Options{URLs: s.URLs(), CA: filepath.Join(t.TempDir(), "absent")})
	require.ErrorContains(t, err, "no such file")
	for _, urls := range []string{"", " , ", "http://localhost", "localhost:4222", "nats://secret:pass word@x"} {
		_, err = cluster.Connect(t.Context(), cluster.Options{URLs: urls})
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err), urls)
		require.NotContains(t, err.Error(), "secret")
	}
	_, err = cluster.Connect(t.Context(), cluster.Options{URLs: s.URLs(), Cert: "x"})
	require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))

	s.Server(0).Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = cluster.Connect(ctx, cluster.Options{URLs: s.URLs()})
	require.Equal(t, errs.Unavailable, errs.CodeOf(err))
	require.ErrorContains(t, err, "cannot be reached")
	require.NoError(t, s.Server(0).Start())
	connect(t, s.URLs())
}

// certificate makes one for localhost that is its own authority.
func certificate(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, &tmpl, &tmpl, k.Public(), k)
	require.NoError(t, err)
	kder, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(t, err)
	cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: kder}), 0o600))
	return cert, key
}

// A server with TLS is spoken to with it: only when its certificate is of the
// authority given, and with our own where it wants one.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificate(t, dir, "server")
	ours, oursKey := certificate(t, dir, "client")
	s, err := natstest.Start(t.Context(), natstest.Options{
		Dir: t.TempDir(), Extra: fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }", cert, key, ours),
	})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	c, err := cluster.Connect(t.Context(), cluster.Options{URLs: s.URLs(), CA: cert, Cert: ours, Key: oursKey})
	require.NoError(t, err)
	require.True(t, c.NATS().TLSRequired())
	c.Close()
	_, err = cluster.Connect(t.Context(), cluster.Options{URLs: s.URLs(), Cert: ours, Key: oursKey})
	require.ErrorContains(t, err, "certificate")
}

// What the servers' settings would lose is refused by its name; what can be seen with
// the system account only is said to be unseen without it.
func TestCheck(t *testing.T) {
	s := natstest.StartT(t, 1)
	c := connect(t, s.URLs())
	f, err := c.Check(t.Context(), cluster.Demands{StoreBytes: 1 << 30, SystemURLs: s.SystemURLs()})
	require.NoError(t, err)
	require.Equal(t, 1, f.Replicas)
	require.Len(t, f.Warnings, 1)
	require.Contains(t, f.Warnings[0], "replica")
	f, err = c.Check(t.Context(), cluster.Demands{StoreBytes: 1 << 30})
	require.NoError(t, err)
	require.Len(t, f.Warnings, 2)
	require.Contains(t, f.Warnings[1], "cannot be seen")
	f, err = c.Check(t.Context(), cluster.Demands{StoreBytes: 1 << 40, SystemURLs: s.SystemURLs()})
	require.NoError(t, err)
	require.Contains(t, f.Warnings[1], "may store")
	_, err = c.Check(t.Context(), cluster.Demands{Replicas: 3})
	require.ErrorContains(t, err, "by itself")
	_, err = c.Check(t.Context(), cluster.Demands{SystemURLs: s.URLs()})
	require.ErrorContains(t, err, "not of the system account")

	lax, err := natstest.Start(t.Context(), natstest.Options{
		Dir: t.TempDir(), MaxPayload: 1 << 19,
	})
	require.NoError(t, err)
	t.Cleanup(lax.Close)
	c = connect(t, lax.URLs())
	_, err = c.Check(t.Context(), cluster.Demands{})
	require.ErrorContains(t, err, "max_payload")

	lax2, err := natstest.Start(t.Context(), natstest.Options{Dir: t.TempDir(), Sync: "2m", AccountStore: 1 << 30})
	require.NoError(t, err)
	t.Cleanup(lax2.Close)
	c = connect(t, lax2.URLs())
	_, err = c.Check(t.Context(), cluster.Demands{StoreBytes: 1<<30 + 1})
	require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
	require.ErrorContains(t, err, "may store")
	_, err = c.Check(t.Context(), cluster.Demands{SystemURLs: lax2.SystemURLs()})
	require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
	require.ErrorContains(t, err, "sync_interval")
	f, err = c.Check(t.Context(), cluster.Demands{SystemURLs: lax2.SystemURLs(), Insecure: true})
	require.NoError(t, err)
	require.Contains(t, f.Warnings[1], "power cut")
}

func config() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: "s", Subjects: []string{"s"}, Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew,
		MaxBytes: 1 << 20, Replicas: 1,
	}
}

// A stream is made, found again, and given another size; one that would lose messages
// or show wrong ones is refused by the name of what is wrong.
func TestOpenStream(t *testing.T) {
	s := natstest.StartT(t, 1)
	c := connect(t, s.URLs())
	for _, size := range []int64{1 << 20, 1 << 20, 1 << 21} {
		cfg := config()
		cfg.MaxBytes = size
		st, err := c.OpenStream(t.Context(), cfg)
		require.NoError(t, err)
		require.Equal(t, size, st.CachedInfo().Config.MaxBytes)
	}
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"subjects":             func(c *jetstream.StreamConfig) { c.Subjects = []string{"s", "t"} },
		"storage":              func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"retention":            func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy },
		"discard":              func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld },
		"max_age":              func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"max_msgs":             func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 },
		"max_msgs_per_subject": func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 10 },
		"max_msg_size":         func(c *jetstream.StreamConfig) { c.MaxMsgSize = 10 },
		"compression":          func(c *jetstream.StreamConfig) { c.Compression = jetstream.S2Compression },
		"allow_direct":         func(c *jetstream.StreamConfig) { c.AllowDirect = true },
		"no_ack":               func(c *jetstream.StreamConfig) { c.NoAck = true },
		"deny_purge":           func(c *jetstream.StreamConfig) { c.DenyPurge = true },
		"allow_rollup_hdrs":    func(c *jetstream.StreamConfig) { c.AllowRollup = true },
		"allow_msg_ttl":        func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true },
		"persist_mode":         func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode },
		"subject_transform": func(c *jetstream.StreamConfig) {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "s", Destination: "u"}
		},
	} {
		require.NoError(t, c.JetStream().DeleteStream(t.Context(), "s"))
		cfg := config()
		change(&cfg)
		_, err := c.JetStream().CreateStream(t.Context(), cfg)
		require.NoError(t, err, name)
		_, err = c.OpenStream(t.Context(), config())
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err), name)
		require.ErrorContains(t, err, " has "+name+" ")
	}
	cfg := config()
	cfg.Name, cfg.Subjects, cfg.Replicas = "r", []string{"r"}, 3
	_, err := c.OpenStream(t.Context(), cfg)
	require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
	require.ErrorContains(t, err, "3 replicas")
	cfg.Replicas, cfg.MaxBytes = 1, 1<<40
	_, err = c.OpenStream(t.Context(), cfg)
	require.Equal(t, errs.StorageFull, errs.CodeOf(err))
	s.Server(0).Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = c.OpenStream(ctx, config())
	require.Equal(t, errs.Unavailable, errs.CodeOf(err))
}

// A stream is made though the request for it, or the answer to that, is lost, as it is while
// servers choose a leader; so is the account looked at.
func TestOpenStreamAsMessagesAreLost(t *testing.T) {
	for _, request := range []bool{true, false} {
		s := natstest.StartT(t, 1)
		proxy, err := natstest.StartProxy(s.Server(0))
		require.NoError(t, err)
		t.Cleanup(proxy.Close)
		c := connect(t, proxy.URL())
		var asked, lost atomic.Bool
		proxy.Lose(func(toServer bool, subject string) bool {
			create := toServer && strings.HasPrefix(subject, "$JS.API.STREAM.CREATE.")
			if create {
				asked.Store(true)
			}
			return (create == request) && (create || !toServer && asked.Load()) && lost.CompareAndSwap(false, true)
		})
		st, err := c.OpenStream(t.Context(), config())
		require.NoError(t, err)
		require.Equal(t, config().Name, st.CachedInfo().Config.Name)
		require.True(t, lost.Load())
		if request {
			lost.Store(false)
			proxy.Lose(func(toServer bool, subject string) bool {
				return toServer && subject == "$JS.API.INFO" && lost.CompareAndSwap(false, true)
			})
			require.NoError(t, c.CheckAccount(t.Context(), 1, 1))
			require.True(t, lost.Load())
		}
	}
}

// A stream is made once the leader has heard from every server; what is said of one
// that stays away is not that there is no room.
func TestOpenStreamAsServersStart(t *testing.T) {
	s := natstest.StartT(t, 3)
	for i := range 3 {
		s.Server(i).Stop()
	}
	for i := range 2 { // which know from before that there is a third
		require.NoError(t, s.Server(i).Start())
	}
	require.NoError(t, s.Ready(t.Context()))
	c := connect(t, s.Server(0).URL())
	cfg := config()
	cfg.Replicas = 3
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := c.OpenStream(ctx, cfg)
	require.Equal(t, errs.Unavailable, errs.CodeOf(err))
	require.ErrorContains(t, err, "has not heard from so many servers")
	made := make(chan error, 1)
	go func() {
		_, err := c.OpenStream(t.Context(), cfg)
		made <- err
	}()
	require.NoError(t, s.Server(2).Start())
	require.NoError(t, <-made)
}
