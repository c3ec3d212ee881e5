package server

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/server/certs"
)

const subjectMembers = "cluster members"

// alarms are metrics that are 0 while all is well.
var alarms = []struct{ metric, means, alert string }{
	{"millrace_wal_failed", "the log acknowledges nothing any more", "MillraceLogFailed"},
	{"millrace_storage_troubled_shards", "shards are damaged, stopped, or cannot be checkpointed", "MillraceShardTroubled"},
	{"millrace_tier_failing_tables", "tables do not get into the lake", "MillraceTieringFails"},
	{"millrace_tier_failing_purges", "lake tables of dropped tables cannot be removed", "MillraceTieringFails"},
	{"millrace_catalog_export_behind", "the object store lacks changes of the catalog", "MillraceCatalogNotExported"},
	{"millrace_keyvalue_failed", "the catalog cannot be followed", "MillraceCatalogFailed"},
	{"millrace_server_tls_files_refused_info", "the files of TLS are not good, and what was read before is used", "MillraceCertificateRefused"},
}

// local is where something that listens is reached from here.
func local(listens string) string {
	host, port, err := net.SplitHostPort(listens)
	if err != nil || !unspecified(listens) {
		return listens
	}
	if strings.Contains(host, ":") {
		return net.JoinHostPort("::1", port)
	}
	return net.JoinHostPort("127.0.0.1", port)
}

// lookAtHealth asks the running server how it is.
func (d *doctor) lookAtHealth(ctx context.Context) {
	if d.running == nil || !d.running.told {
		return
	}
	client, base := d.clientOf(d.running)
	defer client.CloseIdleConnections()
	for _, of := range []string{"/healthz", "/readyz"} {
		var h healthReport
		err := getJSON(ctx, client, base+of, d.o.Token, &h)
		if refused, ok := errors.AsType[*notOK](err); err != nil && (!ok || refused.status != http.StatusServiceUnavailable) {
			d.failed(subjectServer, "its log says what it is at; a server that answers nothing has to be started again", "process %d does not answer: %v", d.running.PID, err)
			return
		}
		switch {
		case h.Detail != "":
			d.failed(subjectServer, "what it says has to be mended; docs/guides/observing.md tells how", "it says: %s", h.Detail)
			return
		case h.Status != statusOK:
			d.warn(subjectServer, "wait until it is ready", "it is %s", h.Status)
			return
		}
		if of == "/readyz" {
			d.ok(subjectServer, "process %d runs on this directory since %v, and takes work at %s", d.running.PID, (time.Duration(h.UptimeMillis) * time.Millisecond).Round(time.Second), base)
		}
	}
	d.lookAtAlarms(ctx, client, base)
	d.lookAtInfo(ctx, client, base)
}

// clientOf is a client of the running server, whose certificate has to be that of the
// settings: its name need not be of loopback.
func (d *doctor) clientOf(r *runningServer) (*http.Client, string) {
	transport := &http.Transport{}
	base := "http://" + local(r.HTTP)
	if r.TLS {
		base = "https://" + local(r.HTTP)
		transport.TLSClientConfig = &tls.Config{
			MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, //nolint:gosec // it is compared with the file
			VerifyConnection: d.sameCertificate,
		}
	}
	return &http.Client{Transport: transport}, base
}

func (d *doctor) sameCertificate(c tls.ConnectionState) error {
	files, err := certs.Open(certs.Options{Cert: d.s.TLSCert, Key: d.s.TLSKey, Clock: d.now, Logger: d.log, Registerer: prometheus.NewRegistry()})
	if err != nil {
		return err
	}
	var shown *x509.Certificate
	if len(c.PeerCertificates) > 0 {
		shown = c.PeerCertificates[0]
	}
	if leaf := files.Leaf(); leaf == nil || shown == nil || !leaf.Equal(shown) {
		return errors.New("it shows another certificate than that in tls-cert: it was started with another, or has not read the new one")
	}
	return nil
}

// lookAtAlarms reads the metrics that should be 0.
func (d *doctor) lookAtAlarms(ctx context.Context, client *http.Client, base string) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	at := base
	if d.running.Metrics != "" {
		at = "http://" + local(d.running.Metrics)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/metrics", http.NoBody)
	if err != nil {
		return
	}
	if d.o.Token != "" && at == base {
		req.Header.Set("Authorization", "Bearer "+d.o.Token)
	}
	resp, err := client.Do(req)
	if err != nil {
		d.failed(subjectServer, "", "its metrics cannot be read: %v", err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		d.skipped(subjectServer, wantsToken, "its alarms: /metrics answers %d", resp.StatusCode)
		return
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		d.failed(subjectServer, "", "its metrics cannot be read: %v", err)
		return
	}
	raised := 0
	for _, a := range alarms {
		if v := sum(b, a.metric); v > 0 {
			raised++
			d.failed(subjectServer, "see "+a.alert+" in docs/guides/observing.md", "%s (%s is %v)", a.means, a.metric, v)
		}
	}
	if raised == 0 {
		d.ok(subjectServer, "it raises no alarm")
	}
}

// sum adds the samples of a metric in Prometheus's text format.
func sum(text []byte, metric string) float64 {
	total := 0.0
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), metric)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		if v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64); err == nil {
			total += v
		}
	}
	return total
}

const wantsToken = "set MILLRACE_TOKEN to the token of an administrator to have them looked at"

// lookAtInfo asks for the release, shards and members.
func (d *doctor) lookAtInfo(ctx context.Context, client *http.Client, base string) {
	var info openapi.Info
	var all openapi.Cluster
	err := getJSON(ctx, client, base+"/v1/info", d.o.Token, &info)
	if err == nil {
		if info.Version != d.o.Version {
			d.warn(subjectServer, "start it again when that suits", "it is release %s, and this program is %s", info.Version, d.o.Version)
		}
		err = getJSON(ctx, client, base+"/v1/cluster", d.o.Token, &all)
	}
	if refused, ok := errors.AsType[*notOK](err); ok && (refused.status == http.StatusUnauthorized || refused.status == http.StatusForbidden) {
		d.skipped(subjectServer, wantsToken, "its release, shards and members: %v", err)
		return
	}
	if err != nil {
		d.failed(subjectServer, "", "%v", err)
		return
	}
	d.clusters = append(d.clusters, clusterSeen{"the running server", info.ClusterID})
	d.members = &all
	bad := 0
	for _, s := range all.Shards {
		switch {
		case s.Owner == "":
			bad++
			d.failed(subjectServer, "see MillraceShardsWithoutOwner in docs/guides/observing.md", "shard %d has no owner", s.Shard)
		case s.State == openapi.ShardStateDamaged:
			bad++
			d.failed(subjectServer, "see MillraceShardTroubled in docs/guides/observing.md", "shard %d is damaged: %s", s.Shard, s.Detail)
		case s.State != openapi.ShardStateOpen:
			bad++
			d.warn(subjectServer, "wait until it is open", "shard %d is %s: %s", s.Shard, s.State, s.Detail)
		}
	}
	for _, p := range all.LakePurges {
		if p.Error != nil {
			bad++
			d.failed(subjectServer, "see the lake's place", "the lake table of %s cannot be removed: %s", p.Table, p.Error.Detail)
		}
	}
	if bad == 0 {
		d.ok(subjectServer, "release %s; %d shards, each with an owner", info.Version, len(all.Shards))
	}
}

// lookAtMembers asks each other process of the cluster how it is, and what time it has.
func (d *doctor) lookAtMembers(ctx context.Context) {
	if d.members == nil || d.members.Mode != openapi.ClusterModeCluster {
		return
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	scheme := "http://"
	if d.s.encrypted() {
		scheme = "https://"
		files, err := certs.Open(certs.Options{CA: d.s.TLSCA, Clock: d.now, Logger: d.log, Registerer: prometheus.NewRegistry()})
		if err != nil {
			return // that was told
		}
		transport.TLSClientConfig = files.Client()
	}
	versions := map[string]string{}
	good := 0
	for _, w := range d.members.Workers {
		versions[w.Version] = w.ID
		if w.Address == "" {
			continue
		}
		before := d.now()
		client := &http.Client{Transport: d.watched(transport, "process "+w.ID, before)}
		var h healthReport
		if err := getJSON(ctx, client, scheme+w.Address+"/healthz", "", &h); err != nil {
			d.failed(subjectMembers, "it has to be reached there by all others: see its --advertise-http, its log, and the network", "%s at %s: %s", w.ID, w.Address, cmp.Or(h.Detail, err.Error()))
			continue
		}
		good++
	}
	if len(versions) > 1 {
		list := make([]string, 0, len(versions))
		for v, id := range versions {
			list = append(list, id+" is "+v)
		}
		slices.Sort(list)
		d.warn(subjectMembers, "releases N and N+1 work together: end the roll-out, or roll it back", "releases differ: %s", strings.Join(list, ", "))
	}
	if good > 0 {
		d.ok(subjectMembers, "%d of %d are reached from here, and are well", good, len(d.members.Workers))
	}
}
