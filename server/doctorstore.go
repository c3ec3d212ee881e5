package server

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/storage/remote"
)

const (
	// storeTime bounds all that is asked of one object store.
	storeTime = 20 * time.Second
	// slowStore is above what an object store nearby takes for a small object.
	slowStore = time.Second
)

// lookAtStores tries the object stores of the checkpoints and of the lake.
func (d *doctor) lookAtStores(ctx context.Context) {
	for _, p := range []address{{name: "remote-uri", value: d.s.RemoteURI}, {name: "lake-uri", value: d.s.LakeURI}} {
		if !strings.Contains(p.value, dataDirMark) { // else it is the data directory's, or not used
			d.lookAtStore(ctx, p)
		}
	}
}

func (d *doctor) lookAtStore(ctx context.Context, p address) {
	store, err := objstore.Open(ctx, p.value, objstore.Options{S3: objstore.S3{
		Endpoint: d.s.S3Endpoint, Region: d.s.S3Region, PathStyle: d.s.S3PathStyle, Timeout: 5 * time.Second, Attempts: 2,
	}})
	if err != nil {
		d.failed(p.name, "see --"+p.name+" and --s3-…", "%v", err)
		return
	}
	if folder, ok := strings.CutPrefix(store.URI(), "file://"); ok && d.absent(folder) {
		if at := existing(folder); unix.Access(at, unix.W_OK) != nil {
			d.failed(p.name, "make the folder, and give it to the user that the server runs as", "%s is not there, and %s may not be written to", folder, at)
		} else {
			d.ok(p.name, "%s is not there yet: it is made when something is first written", folder)
		}
		return
	}
	d.tryStore(ctx, p.name, store)
	if p.name != "remote-uri" {
		return
	}
	id, err := remote.ClusterOf(ctx, store)
	switch {
	case err == nil:
		d.clusters = append(d.clusters, clusterSeen{p.name, clusterText(id)})
	case errors.Is(err, objstore.ErrNotExist), errs.Is(err, errs.Unavailable):
	default:
		d.failed(p.name, "name the place of this cluster's checkpoints, or an empty one", "%v", err)
	}
}

// scratch is the folder of objects that a doctor makes.
const scratch = "doctor"

// tryStore does with an object of its own all that a server does.
func (d *doctor) tryStore(ctx context.Context, name string, store objstore.Store) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	key := scratch + "/" + draw(8)
	var slowest time.Duration
	var at string
	step := func(what string, do func() error) bool {
		begin := time.Now()
		if err := do(); err != nil {
			d.failed(name, adviceForStore(err), "%s at %s: %v", what, store.URI(), err)
			return false
		}
		if took := time.Since(begin); took > slowest {
			slowest, at = took, what
		}
		return true
	}
	body := []byte("made by millrace doctor, and removed by it\n")
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
		defer cancel()
		_ = store.Remove(end, key) // where removing does not work, that was told
		if folder, ok := strings.CutPrefix(store.URI(), "file://"); ok {
			_ = os.Remove(folder + "/" + scratch) // which has nothing in it
		}
	}()
	before := d.now()
	good := step("writing a new object", func() error { return store.Create(ctx, key, body) }) &&
		step("reading about it", func() error {
			info, err := store.Stat(ctx, key)
			if err == nil {
				d.clock(name, before, d.now(), info.Modified, time.Second)
			}
			return err
		}) &&
		step("a conditional write", func() error {
			if err := store.Create(ctx, key, []byte("another")); !errors.Is(err, objstore.ErrExists) {
				return conditional(err)
			}
			return nil
		}) &&
		step("reading it", func() error {
			got, err := store.Get(ctx, key)
			if err == nil && !bytes.Equal(got, body) {
				err = errors.New("it gives other bytes than were written")
			}
			return err
		}) &&
		step("reading a part of it", func() error {
			got := make([]byte, 4)
			err := store.ReadAt(ctx, key, got, 5)
			if err == nil && !bytes.Equal(got, body[5:9]) {
				err = errors.New("it gives other bytes than were asked for")
			}
			return err
		}) &&
		step("replacing it", func() error { return store.Put(ctx, key, body) }) &&
		step("listing", func() error { return listed(ctx, store, key) }) &&
		step("removing it", func() error {
			if err := store.Remove(ctx, key); err != nil {
				return err
			}
			switch _, err := store.Stat(ctx, key); {
			case err == nil:
				return errors.New("it is still there")
			case !errors.Is(err, objstore.ErrNotExist):
				return err
			}
			return nil
		})
	switch {
	case !good:
	case slowest > slowStore:
		d.warn(name, "take one that is near, and look at the network between", "%s does all that is asked of it, and takes up to %v (%s)", store.URI(), round(slowest), at)
	default:
		d.ok(name, "%s: written, conditionally too, read, listed and removed, each within %v", store.URI(), round(slowest))
	}
}

// conditional is what a conditional write says that should have been refused.
func conditional(err error) error {
	if err != nil {
		return err
	}
	return errors.New("a second one was taken, so two processes could both believe that they were first: the store does not know conditional writes (If-None-Match)")
}

func listed(ctx context.Context, store objstore.Store, key string) error {
	found := false
	err := store.List(ctx, key, func(i objstore.Info) error {
		found = found || i.Key == key
		return nil
	})
	if err == nil && !found {
		err = errors.New("an object that was written is not listed")
	}
	return err
}

const unknownAccessKey = "the store does not know this access key: see AWS_ACCESS_KEY_ID and AWS_PROFILE of the server's user, or the role of the machine"

// adviceForStore goes by what stores answer.
func adviceForStore(err error) string {
	text := err.Error()
	for _, a := range []struct{ says, advice string }{
		{"AccessDenied", "the credentials may not do this: they need GetObject, PutObject, DeleteObject and ListBucket below this place"},
		{"access key ID", unknownAccessKey},
		{"InvalidAccessKeyId", unknownAccessKey},
		{"SignatureDoesNotMatch", "the secret key is not that of the access key (AWS_SECRET_ACCESS_KEY)"},
		{"ExpiredToken", "the credentials have expired: renew them"},
		{"RequestTimeTooSkewed", "this machine's clock is off: set it (chronyc tracking, timedatectl)"},
		{"no such bucket", "make the bucket, or name another; on a server other than AWS, --s3-path-style may be missing"},
		{"are not accepted", "the credentials may not do this, or are not those of this store"},
		{"credentials", "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or give the machine a role"},
		{"conditional writes", "take a store that has them: AWS, Ceph, MinIO and versitygw do"},
		{"no such host", "see --s3-endpoint and --s3-region; on a server other than AWS, --s3-path-style may be missing"},
		{"connection refused", "is the store running there? See --s3-endpoint"},
		{"permission denied", "give the folder to the user that the server runs as"},
		{"no space left", "make room there"},
	} {
		if strings.Contains(text, a.says) {
			return a.advice
		}
	}
	return "see --s3-endpoint, --s3-region and the credentials that AWS's tools would use"
}
