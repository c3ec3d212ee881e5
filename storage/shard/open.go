package shard

import (
	"fmt"
	"path"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/bucket"
)

// bucketFor finds the op's bucket, at the newest version of its table that is known,
// the op's included. One that is not open yet is made, with the entry that opens it.
func (s *Shard) bucketFor(g *group, op *Op) (*bucketState, *openEntry, error) {
	if err := s.goneError(g, op); err != nil {
		return nil, nil, err
	}
	b := s.bucket(op.Bucket)
	if b == nil {
		b = s.unborn[op.Bucket]
	}
	var open *openEntry
	if b == nil {
		b, open = s.makeBucket(op)
	}
	b.of.teach(g, op)
	if b.tableVersion != b.of.version {
		if pt := g.byID[b.id]; pt != nil {
			pt.cut() // a payload is of one schema
		}
		b.tableVersion = b.of.version
	}
	return b, open, nil
}

// makeBucket makes a bucket and, when the shard does not know it yet, its table.
func (s *Shard) makeBucket(op *Op) (*bucketState, *openEntry) {
	o := &openEntry{Buckets: []millrace.BucketID{op.Bucket}}
	t := s.preparedTable(op.Table.ID)
	if t == nil {
		t = newTableState(op.Table)
		o.Table = op.Table
	}
	return newBucketState(op.Bucket, t, bucket.New(op.Bucket, 0, s.bucketOptions(op.Bucket))), o
}

func newBucketState(id millrace.BucketID, t *tableState, log *bucket.Log) *bucketState {
	return &bucketState{id: id, of: t, tableVersion: t.version, log: log}
}

// preparedTable is what is known of a table as of what was prepared before; nil when
// nothing is.
func (s *Shard) preparedTable(id millrace.TableID) *tableState {
	for _, u := range s.unborn {
		if u.id.Table == id {
			return u.of
		}
	}
	return s.knownTable(id)
}

func (s *Shard) knownTable(id millrace.TableID) *tableState {
	s.bucketsMu.RLock()
	defer s.bucketsMu.RUnlock()
	return s.tables[id]
}

func (s *Shard) bucketOptions(id millrace.BucketID) bucket.Options { return bucketOptions(&s.o, id) }

func bucketOptions(so *Options, id millrace.BucketID) bucket.Options {
	root := path.Join(so.Dir, segmentsDir)
	o := bucket.Options{
		FS:        so.FS,
		Root:      root,
		Dir:       path.Join(root, tableDir(id.Table), partitionDir(id.Partition), fmt.Sprintf("%05d", id.Bucket)),
		Cluster:   so.Cluster,
		SealBytes: so.SealBytes,
		Codec:     so.Codec,
		Logger:    so.Logger,
	}
	if so.Remote != nil {
		o.OpenRemote = so.Remote.Open
	}
	return o
}

const segmentsDir = "segments"

func tableDir(id millrace.TableID) string { return fmt.Sprintf("%010d", id) }

func partitionDir(id millrace.PartitionID) string { return fmt.Sprintf("%010d", id) }
