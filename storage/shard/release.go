package shard

import (
	"log/slog"
	"math"

	"github.com/cockroachdb/errors/oserror"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/segment"
)

// releasedFile is a file that a log let go of, and that the newest manifest may name.
type releasedFile struct {
	file   *segment.File
	bucket millrace.BucketID
	away   bool // only its local copy goes
}

// releaseDue says whether a bucket may let go of something, as of the last look.
func (s *Shard) releaseDue() bool { return s.o.Clock.Now().UnixMicro() >= s.expiry.releaseAt }

// release lets the logs go of what their starts passed KeepExpired ago. The files stay
// until a manifest no longer names them: a crash before that opens them again.
func (s *Shard) release(all []*bucketState) error {
	now := s.o.Clock.Now()
	before := now.Add(-s.o.KeepExpired).UnixMicro()
	s.expiry.releaseAt = math.MaxInt64
	for _, b := range all {
		r, err := b.log.Release(before, now.UnixMicro())
		if at := b.log.View().Passing(); at != 0 {
			s.expiry.releaseAt = min(s.expiry.releaseAt, at+s.o.KeepExpired.Microseconds())
		}
		s.tailBytes.Add(-r.TailBytes)
		s.o.Metrics.expiredBytes.Add(float64(r.TailBytes))
		for _, f := range r.Files {
			s.expiry.released = append(s.expiry.released, releasedFile{file: f, bucket: b.id})
		}
		if err != nil {
			return err
		}
	}
	wake(s.flushed) // there may be room
	return nil
}

// removeReleased removes the files that were let go of before the newest manifest was
// made. What cannot be removed stays: the next start removes what no manifest names.
func (s *Shard) removeReleased() {
	for _, r := range s.expiry.released {
		if !r.away {
			s.o.Metrics.expiredBytes.Add(float64(r.file.Size()))
		}
		// Readers that have it open read on. Objects go when no checkpoint names them.
		if r.file.Local() {
			if err := s.o.FS.Remove(r.file.Path()); err != nil && !oserror.IsNotExist(err) {
				s.o.Logger.Warn("a file that is not needed any more stays", slogBucket(r.bucket), slog.String("file", r.file.Path()), slogErr(err))
			}
		}
		s.closeReleased(r)
	}
	s.expiry.released = nil
}

func (s *Shard) closeReleased(r releasedFile) {
	if err := r.file.Close(); err != nil {
		s.o.Logger.Warn("a file that is not needed any more does not close", slogBucket(r.bucket), slogErr(err))
	}
}
