package server

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/trace/otlp"
)

// Settings are what a server can be told. Field tags name each setting, give its
// default and its help; `later` names the feature of a setting that this release
// takes at its default only.
type Settings struct {
	HTTPAddr   string `name:"http-addr" default:"127.0.0.1:8080" help:"Address of the HTTP API, and of /healthz, /readyz, /metrics."`
	FlightAddr string `name:"flight-addr" default:"127.0.0.1:8815" help:"Address of Arrow Flight."`
	DataDir    string `name:"data-dir" default:"./millrace-data" help:"Folder of everything the server keeps."`

	CacheSize string `name:"cache-size" default:"auto" help:"Memory for rows and blocks of keyed tables, as 512MiB; auto: a sixteenth of the machine's, from 64MiB to 1GiB."`
	// ReceiveMemory bounds what clients are sending, and what they are sent.
	ReceiveMemory string `name:"receive-memory" default:"auto" help:"Memory for bodies and batches that clients are sending, and as much again for what they are reading, as 512MiB; what finds no room in time is refused with overloaded. auto: a sixteenth of the machine's, from 128MiB to 1GiB."`

	LakeURI   string `name:"lake-uri" default:"file://<data-dir>/lake" help:"Where lake tables are: file:///folder or s3://bucket/prefix."`
	RemoteURI string `name:"remote-uri" default:"file://<data-dir>/remote" help:"Where checkpoints and old segments are besides the data directory: file:///folder or s3://bucket/prefix; one place for all processes of a cluster. At its default a single node has none."`

	RemoteCacheSize string `name:"remote-cache-size" default:"256MiB" help:"Memory for what is read of remote segments, as 256MiB."`
	LogMaxSize      string `name:"log-max-size" default:"8GiB" help:"How large the log of a shard in NATS may get, which the NATS servers set aside for it; writes are refused beyond."`

	LakeCatalog           string   `name:"lake-catalog" default:"" help:"A catalog of your own that lake tables are committed to: rest, glue, hive, or sql (SQLite); empty: the lake stands alone."`
	LakeCatalogURI        string   `name:"lake-catalog-uri" default:"" help:"Its address: http(s)://host/path, thrift://host:port, or sqlite:///file; none for Glue at Amazon's."`
	LakeCatalogProperties []string `name:"lake-catalog-properties" default:"" help:"What its client is told, as token=…,warehouse=…; in the environment rather than in a flag, when it is secret."`

	S3Endpoint  string `name:"s3-endpoint" default:"" help:"Address of an S3 server other than AWS, as http://127.0.0.1:9000. Credentials are those of AWS's tools: environment, files, roles."`
	S3Region    string `name:"s3-region" default:"" help:"Region of the buckets; empty: what AWS's tools are told."`
	S3PathStyle bool   `name:"s3-path-style" default:"false" help:"Name the bucket in the path of requests, which most servers other than AWS need."`

	Roles           []string `name:"roles" default:"front,worker,tier" help:"Which parts of the service run in this process; some alone in a cluster only."`
	NATSURL         string   `name:"nats-url" default:"" help:"Addresses of NATS, comma-separated, as nats://user:password@host:4222; empty: a single node."`
	NATSCreds       string   `name:"nats-creds" default:"" help:"File of the credentials for NATS."`
	NATSCA          string   `name:"nats-ca" default:"" help:"File of the authorities that sign the certificates of NATS; empty: those of the system."`
	NATSCert        string   `name:"nats-cert" default:"" help:"File of the certificate shown to NATS."`
	NATSKey         string   `name:"nats-key" default:"" help:"File of that certificate's key."`
	NATSSystemURL   string   `name:"nats-system-url" default:"" help:"Addresses of NATS with the user of its system account, which alone tells whether the servers sync what they write; empty: that is not asked."`
	NATSSystemCreds string   `name:"nats-system-creds" default:"" help:"File of the credentials for that account."`
	InsecureNATS    bool     `name:"insecure-nats" default:"false" help:"Use NATS servers that do not sync each write: a power cut of several can lose acknowledged rows."`
	ClusterName     string   `name:"cluster-name" default:"millrace" help:"Name of the cluster in NATS: letters, digits, - and _."`
	WorkerName      string   `name:"worker-name" default:"" help:"Name of this process in the cluster: letters, digits, - and _; empty: one that is drawn once and kept in the data directory."`
	Shards          int      `name:"shards" default:"0" help:"How many shards there are; may grow, never shrink. 0: as many as there were; 4 of a new single node, 16 of a new cluster."`
	AdvertiseHTTP   string   `name:"advertise-http" default:"" help:"host:port at which the other processes of the cluster reach --http-addr; empty: that address."`
	AdvertiseFlight string   `name:"advertise-flight" default:"" help:"Address of Flight that endpoints tell clients; empty: they use the one they have."`

	CORSOrigins    []string `name:"cors-origins" default:"" help:"Origins whose pages may call the API from a browser, as https://app.example.com; *, with authentication: every page that has a token."`
	MaxConnections int      `name:"max-connections" default:"0" help:"How many connections a port holds; when it is full, the one longest without work is closed for a new one. 0: 8192, or what the limit of open files leaves."`

	MetricsAddr string `name:"metrics-addr" default:"" help:"A second address for /healthz, /readyz, /metrics alone, always without TLS."`

	AuthJWKS        string   `name:"auth-jwks" default:"" help:"Keys that tokens are checked with: a file or the https address of a JSON Web Key Set, or dev for the development key; turns authentication on."`
	AuthIssuer      string   `name:"auth-issuer" default:"" help:"Issuer that tokens must name; empty: any that has the keys."`
	AuthAudience    string   `name:"auth-audience" default:"" help:"Audience that tokens must name; empty: any, so tokens for other services of the issuer are good here too."`
	AuthGroupsClaim string   `name:"auth-groups-claim" default:"groups" help:"Claim that lists a principal's groups."`
	AdminPrincipal  string   `name:"admin-principal" default:"" help:"The first administrator, as user:<sub>."`
	AuditLog        string   `name:"audit-log" default:"" help:"File for a JSON line of who did what, to what, and how it ended, for every call; empty: none. Made for its owner alone; when it is moved away, it is made anew."`
	AuditTable      string   `name:"audit-table" default:"" help:"Log table for the same, as database.table; made where it is not there."`
	AuditVerbs      []string `name:"audit-verbs" default:"describe,read,write" help:"Which of describe, read and write are written down when they are allowed; what is refused, and what changes tables, grants or quotas, always is."`

	TLSCert     string `name:"tls-cert" default:"" help:"File of the certificate for http-addr and flight-addr, with those in between after it; it is read again when it changes."`
	TLSKey      string `name:"tls-key" default:"" help:"File of the certificate's key, which other users of the machine may not read."`
	TLSClientCA string `name:"tls-client-ca" default:"" help:"File of the authorities that sign client certificates; who shows one and no token is known by it."`
	TLSCA       string `name:"tls-ca" default:"" help:"File of the authorities that sign the certificates of the other processes of a cluster; empty: those of the system."`
	Insecure    bool   `name:"insecure" default:"false" help:"Serve other machines without authentication."`

	DebugAddr    string `name:"debug-addr" default:"" help:"A loopback address for profiles and variables of the process (/debug/pprof, /debug/vars); empty: none."`
	OTLPEndpoint string `name:"otlp-endpoint" default:"" help:"Where spans go: grpc://host:4317, grpcs://…, http://host:4318 or https://… of an OpenTelemetry collector; empty: nothing is traced."`

	LogLevel  string `name:"log-level" default:"info" help:"What is logged at least: debug, info, warn, error."`
	LogFormat string `name:"log-format" default:"text" help:"text for people, json for machines."`
}

// dataDirMark stands for the data directory in addresses.
const dataDirMark = "<data-dir>"

// Validate says what is wrong with the settings, if anything is: a value that
// cannot be, one that a later release brings, or an unsafe one that was not asked for.
func (s *Settings) Validate() error {
	if err := s.refuseLater(); err != nil {
		return err
	}
	if err := s.checkPasswords(); err != nil {
		return err
	}
	if err := s.checkCluster(); err != nil {
		return err
	}
	if s.DataDir == "" {
		return wrong("data-dir", "is empty")
	}
	if _, err := cacheBytes(s.CacheSize, 0); err != nil {
		return err
	}
	if _, err := receiveBytes(s.ReceiveMemory, 0); err != nil {
		return err
	}
	for _, size := range []address{{name: "remote-cache-size", value: s.RemoteCacheSize}, {name: "log-max-size", value: s.LogMaxSize}} {
		if _, err := sizeOf(size.name, size.value); err != nil {
			return err
		}
	}
	if _, err := s.ownCatalog(nil); err != nil {
		return err
	}
	if err := s.checkTLS(); err != nil {
		return err
	}
	if err := s.checkOrigins(); err != nil {
		return err
	}
	if s.MaxConnections < 0 || s.MaxConnections > 1<<20 {
		return wrong("max-connections", "%d is not from 0 to %d", s.MaxConnections, 1<<20)
	}
	if err := s.checkCallers(); err != nil {
		return err
	}
	if err := s.checkAudit(); err != nil {
		return err
	}
	for _, a := range s.addresses() {
		loopback, err := isLoopback(a.value)
		switch {
		case a.value == "" && a.optional:
		case err != nil:
			return wrong(a.name, "%v", err)
		case !loopback && !s.Insecure && !s.authenticated():
			return wrong(a.name, "%s can be reached from other machines, and there is no authentication: anyone there could read and change everything; turn it on with --auth-jwks, use a loopback address, or --insecure to serve them all the same", a.value)
		}
	}
	if s.OTLPEndpoint != "" {
		if err := otlp.CheckEndpoint(s.OTLPEndpoint); err != nil {
			return wrong("otlp-endpoint", "%v", err)
		}
	}
	if loopback, err := isLoopback(s.DebugAddr); s.DebugAddr != "" && err != nil {
		return wrong("debug-addr", "%v", err)
	} else if s.DebugAddr != "" && !loopback {
		return wrong("debug-addr", "%s can be reached from other machines, and profiles show what passes through the process: use a loopback address, and reach it by ssh -L", s.DebugAddr)
	}
	for _, a := range []address{{name: "advertise-flight", value: s.AdvertiseFlight}, {name: "advertise-http", value: s.AdvertiseHTTP}} {
		if _, _, err := net.SplitHostPort(a.value); a.value != "" && err != nil {
			return wrong(a.name, "%q is not of the form host:port", a.value)
		}
	}
	if _, err := logLevel(s.LogLevel); err != nil {
		return err
	}
	if s.LogFormat != formatText && s.LogFormat != formatJSON {
		return wrong("log-format", "%q is neither %s nor %s", s.LogFormat, formatText, formatJSON)
	}
	return nil
}

type address struct {
	name, value string
	optional    bool
}

func (s *Settings) addresses() []address {
	return []address{
		{name: "http-addr", value: s.HTTPAddr},
		{name: "flight-addr", value: s.FlightAddr},
		{name: "metrics-addr", value: s.MetricsAddr, optional: true},
	}
}

func (s *Settings) refuseLater() error {
	for _, f := range fields(s) {
		if f.later == "" || f.text() == f.dflt {
			continue
		}
		return errs.New(errs.NotImplemented, "setting %s is %q: not yet; %s comes with a later release", f.name, f.text(), f.later)
	}
	return nil
}

// isLoopback says whether a listening address can be reached from this machine only.
func isLoopback(addr string) (bool, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false, fmt.Errorf("%q is not of the form host:port", addr)
	}
	if host == "localhost" {
		return true, nil
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback(), nil
}

func wrong(name, format string, args ...any) error {
	return errs.New(errs.InvalidRequest, "setting %s: %s", name, fmt.Sprintf(format, args...))
}
