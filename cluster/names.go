package cluster

import (
	"encoding/hex"
	"fmt"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// DefaultName is the name of a cluster that was given none.
const DefaultName = "millrace"

const maxNameLength = 32

// CheckName says whether a cluster may have the name: lower-case letters, digits, "-"
// and "_", at most 32 of them.
func CheckName(name string) error {
	ok := name != "" && len(name) <= maxNameLength
	for _, r := range name {
		ok = ok && (r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	}
	if !ok {
		return errs.New(errs.InvalidName, "%q is not the name of a cluster: at most %d of a-z, 0-9, - and _", name, maxNameLength)
	}
	return nil
}

// CatalogStream is the stream of the catalog of the cluster with the name. It is how a
// process finds its cluster: whoever makes it draws the cluster's id.
func CatalogStream(name string) string { return "mr_" + name + "_catalog" }

// Names are the names of a cluster's streams and subjects. Clusters may share an
// account: the names have the first 8 hex digits of the cluster's id.
type Names struct{ id8 string }

// NamesOf are the names of the cluster with the id.
func NamesOf(id [16]byte) Names { return Names{hex.EncodeToString(id[:4])} }

// CatalogSubject is the subject of commits of the catalog.
func (n Names) CatalogSubject() string { return n.subject("catalog") }

// KeysBucket is the key-value bucket of sessions and leases.
func (n Names) KeysBucket() string { return "mr_" + n.id8 + "_keys" }

// LogStream is the stream of a shard's log.
func (n Names) LogStream(shard millrace.ShardID) string {
	return fmt.Sprintf("mr_%s_wal_%d", n.id8, shard)
}

// LogSubject is the subject of a shard's log.
func (n Names) LogSubject(shard millrace.ShardID) string {
	return n.subject(fmt.Sprintf("wal.%d", shard))
}

// ShardSubject is where calls to a shard's owner go.
func (n Names) ShardSubject(shard millrace.ShardID) string {
	return n.subject(fmt.Sprintf("shard.%d", shard))
}

// AllSubject is where every process is told of something.
func (n Names) AllSubject(what string) string { return n.subject("all." + what) }

func (n Names) subject(rest string) string { return "mr." + n.id8 + "." + rest }
