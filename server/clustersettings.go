package server

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/millrace/millrace/cluster/owner"
)

// knownRoles are the parts of the service.
var knownRoles = []string{owner.RoleFront, owner.RoleWorker, owner.RoleTier}

// maxShards is how many shards there can be: a stream of NATS each.
const maxShards = 4096

// clustered says whether the process is part of a cluster.
func (s *Settings) clustered() bool { return s.NATSURL != "" }

// has says whether the process has a role.
func (s *Settings) has(role string) bool { return slices.Contains(s.Roles, role) }

// checkCluster checks the settings of roles and of the cluster.
func (s *Settings) checkCluster() error {
	for _, r := range s.Roles {
		if !slices.Contains(knownRoles, r) {
			return wrong("roles", "%q is not one of %s", r, strings.Join(knownRoles, ", "))
		}
	}
	if s.Shards < 0 || s.Shards > maxShards {
		return wrong("shards", "%d is not from 0 to %d", s.Shards, maxShards)
	}
	if s.clustered() {
		return s.checkClustered()
	}
	for _, r := range knownRoles {
		if !s.has(r) {
			return wrong("roles", "%s is not among %s: a single node has all roles; set nats-url to run them apart", r, strings.Join(s.Roles, ", "))
		}
	}
	for _, a := range []address{
		{name: "nats-creds", value: s.NATSCreds},
		{name: "nats-system-url", value: s.NATSSystemURL},
		{name: "nats-system-creds", value: s.NATSSystemCreds},
		{name: "nats-ca", value: s.NATSCA},
		{name: "nats-cert", value: s.NATSCert},
		{name: "nats-key", value: s.NATSKey},
		{name: "worker-name", value: s.WorkerName},
		{name: "advertise-http", value: s.AdvertiseHTTP},
	} {
		if a.value != "" {
			return wrong(a.name, "is of a cluster, and nats-url is not set")
		}
	}
	return nil
}

func (s *Settings) checkClustered() error {
	if len(s.Roles) == 0 {
		return wrong("roles", "is empty: name one or more of %s", strings.Join(knownRoles, ", "))
	}
	if err := owner.CheckWorkerName(s.ClusterName); err != nil {
		return wrong("cluster-name", "%v", err)
	}
	if s.WorkerName != "" {
		if err := owner.CheckWorkerName(s.WorkerName); err != nil {
			return wrong("worker-name", "%v", err)
		}
	}
	if (s.NATSCert == "") != (s.NATSKey == "") {
		return wrong("nats-cert", "and nats-key are set together")
	}
	for _, a := range []address{{name: "remote-uri", value: s.RemoteURI}, {name: "lake-uri", value: s.LakeURI}} {
		if strings.Contains(a.value, dataDirMark) {
			return wrong(a.name, "is in the data directory of this process, and all processes of a cluster need the same place: name an s3://bucket/prefix, or a folder that all of them mount")
		}
	}
	if s.AdvertiseHTTP == "" && unspecified(s.HTTPAddr) {
		return wrong("advertise-http", "is empty, and http-addr %s does not say at which address other processes reach this one", s.HTTPAddr)
	}
	return nil
}

// unspecified says whether a listening address is of all interfaces.
func unspecified(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsUnspecified()
}

// withoutPasswords are the addresses of a list, their passwords left out.
func withoutPasswords(list string) string {
	var out []string
	for a := range strings.SplitSeq(list, ",") {
		if u, err := url.Parse(strings.TrimSpace(a)); err == nil {
			a = u.Redacted()
		} else {
			a = "(an address that does not parse)"
		}
		out = append(out, a)
	}
	return strings.Join(out, ",")
}
