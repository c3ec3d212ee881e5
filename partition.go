package millrace

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Limits of partitions.
const (
	// MaxPartitions is the most partitions that a table may have at once, without those
	// that are in the lake alone.
	MaxPartitions = 10_000
	// MaxExpired is the most partitions of a table that are in the lake alone.
	MaxExpired = 100_000
)

// Partition is one partition of a partitioned table. It is immutable: a change of
// state makes a new one.
type Partition struct {
	ID    PartitionID `json:"id"`
	Table TableID     `json:"table"`
	// Name is PartitionName of Values.
	Name string `json:"name"`
	// Values are the partition columns' values in the order of Table.PartitionBy, each
	// as the text of its JSON value: 7, 2026-08-26, true, EU, base64 of bytes.
	Values    []string       `json:"values"`
	State     PartitionState `json:"state"`
	Shards    []ShardID      `json:"shards"` // the shard of each bucket, by bucket number
	CreatedAt time.Time      `json:"created_at"`
	// Dropping says that it is being dropped, with all its rows, those in the lake too.
	Dropping bool `json:"dropping,omitempty"`
	// ExpiredAt is when it became expired; zero before.
	ExpiredAt time.Time `json:"expired_at,omitzero"`
	// Gone says that the workers have let go of its rows, a while after it expired.
	Gone bool `json:"gone,omitempty"`
}

// LakeOnly says whether its rows are to be read from the lake alone.
func (p *Partition) LakeOnly() bool { return p.State == PartitionExpired && !p.Dropping }

// Shown is the state that people are shown.
func (p *Partition) Shown() PartitionState {
	if p.Dropping {
		return PartitionDropping
	}
	return p.State
}

// CountLive counts those partitions that are not in the lake alone.
func CountLive(ps []*Partition) int {
	n := 0
	for _, p := range ps {
		if !p.LakeOnly() {
			n++
		}
	}
	return n
}

// BucketID is the id of bucket n of the partition.
func (p *Partition) BucketID(n uint16) BucketID {
	return BucketID{Table: p.Table, Partition: p.ID, Bucket: n}
}

// PartitionState is where a partition is in its life.
type PartitionState string

// The states, in order. From PartitionClosing on, nothing new is routed to it; a
// seal in the log of each of its shards then refuses what is still under way. Of an
// expired one nothing is read from the workers: all its rows are in the lake, or go.
const (
	PartitionOpen    PartitionState = "open"
	PartitionClosing PartitionState = "closing"
	PartitionSealed  PartitionState = "sealed"
	PartitionExpired PartitionState = "expired"
	// PartitionDropping is no state of a partition: it is shown of one that is being dropped.
	PartitionDropping PartitionState = "dropping"
)

// PartitionName is the name of the partition with these values:
// "dt=2026-08-26/hour=7", values percent-encoded outside [A-Za-z0-9._-].
// REQUIRES: as many columns as values.
func PartitionName(columns, values []string) string {
	var b strings.Builder
	for i, c := range columns {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(c)
		b.WriteByte('=')
		for j := range len(values[i]) {
			switch ch := values[i][j]; {
			case ch >= 'a' && ch <= 'z', ch >= 'A' && ch <= 'Z', ch >= '0' && ch <= '9', ch == '.', ch == '_', ch == '-':
				b.WriteByte(ch)
			default:
				fmt.Fprintf(&b, "%%%02X", ch)
			}
		}
	}
	return b.String()
}

// ParsePartitionName splits a partition's name into column names and values.
func ParsePartitionName(name string) (columns, values []string, err error) {
	for pair := range strings.SplitSeq(name, "/") {
		col, val, ok := strings.Cut(pair, "=")
		text, uerr := url.PathUnescape(val)
		if !ok || uerr != nil {
			return nil, nil, fmt.Errorf("%s is not the name of a partition such as dt=2026-08-26/hour=7", clip(name))
		}
		columns, values = append(columns, col), append(values, text)
	}
	return columns, values, nil
}
