package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/storage/remote"
)

// mayBeNew sees, where NATS has no catalog, that this is a cluster which begins, and not
// one whose NATS has lost everything: a catalog that was made anew would be another
// cluster's, and in the way of a restore.
func (s *Server) mayBeNew(ctx context.Context, kv catalog.KV) error {
	there, _, err := kv.Load(ctx)
	if err != nil || len(there) > 0 {
		return err
	}
	where, err := s.ownerOfData(ctx)
	if err != nil || where == "" {
		return err
	}
	// Another process that begins the cluster may have been quicker.
	if _, err := kv.Sync(ctx); err != nil {
		return err
	}
	if there, _, err := kv.Load(ctx); err != nil || len(there) > 0 {
		return err
	}
	return errs.New(errs.InvalidRequest, "NATS has no catalog of cluster %s, and %s belongs to a cluster: if NATS has lost it, millrace restore brings it back; if this is to be another cluster, it needs a place of its own", s.settings.ClusterName, where)
}

// ownerOfData names what there is of a cluster already; "" when there is nothing.
func (s *Server) ownerOfData(ctx context.Context) (string, error) {
	file := filepath.Join(s.dir, clusterFile)
	if _, err := os.Stat(file); err == nil {
		return "data-dir " + s.dir, nil
	} else if !os.IsNotExist(err) {
		return "", err
	}
	uri := s.settings.RemoteURI
	objects, err := objstore.Open(ctx, uri, objstore.Options{S3: objstore.S3{Endpoint: s.settings.S3Endpoint, Region: s.settings.S3Region, PathStyle: s.settings.S3PathStyle}})
	if err != nil {
		return "", wrong("remote-uri", "%v", err)
	}
	ask, cancel := context.WithTimeout(ctx, newClusterTime)
	defer cancel()
	_, err = remote.ClusterOf(ask, objects)
	switch {
	case errors.Is(err, objstore.ErrNotExist):
		return "", nil
	case err != nil:
		return "", errs.New(errs.Unavailable, "NATS has no catalog of cluster %s, and whether remote-uri %s has checkpoints of one cannot be seen: %v", s.settings.ClusterName, uri, err)
	}
	return "remote-uri " + uri, nil
}

// newClusterTime is how long the process that begins a cluster waits for its object store.
const newClusterTime = 30 * time.Second
