package wal

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Files is the log of all shards of one process, in one directory.
type Files struct {
	fs   vfs.FS
	dir  string
	opts Options
	met  *metrics
	logs []*shardLog

	// The committer's own.
	cur     appendFile
	writing writing
	gather  []byte

	closing sync.Once
	closed  error

	mu struct {
		sync.Mutex
		heads  []head // what is durable
		spans  []span // the files that live, in order; the last is appended to
		purged []millrace.LSN
		pins   int      // replays under way: files stay
		doomed []uint64 // files to remove when there are none
		queue  []*request
		dead   error // why nothing is acknowledged any more
		closed bool
	}
	wake chan struct{} // for the committer; capacity 1
	done chan struct{} // closed when the committer has ended
}

// span is a file of the log.
type span struct {
	number uint64
	start  []head // where each shard stood when it was begun
	data   int64  // offset of its first frame
	end    int64  // of what belongs to the log
}

// head is where a shard stood when the file was begun: at 0 when it came later.
func (s *span) head(shard millrace.ShardID) head {
	if int(shard) < len(s.start) {
		return s.start[shard]
	}
	return head{}
}

const (
	fileSuffix = ".wal"
	tmpSuffix  = ".wal.tmp"
	tornSuffix = ".wal.torn"
)

func (f *Files) path(number uint64, suffix string) string {
	return f.fs.PathJoin(f.dir, fmt.Sprintf("%020d%s", number, suffix))
}

// parseName is the number of a file name with the suffix.
func parseName(name, suffix string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil && n > 0
}

// Shards is the number of shards: that of the options, or more when the directory has more.
func (f *Files) Shards() int { return len(f.logs) }

// Shard returns the log of a shard.
func (f *Files) Shard(id millrace.ShardID) (Log, error) {
	if int(id) >= len(f.logs) {
		return nil, errs.New(errs.InvalidRequest, "there is no shard %d: the log has %d", id, len(f.logs))
	}
	return f.logs[id], nil
}

// Err says why nothing is acknowledged any more; nil while all is well.
func (f *Files) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.dead
}

// remove removes a file that nothing refers to. A failure costs room only; the
// next start tries again.
func (f *Files) remove(name string) {
	if err := f.fs.Remove(name); err != nil && !oserror.IsNotExist(err) {
		f.opts.Logger.Warn("log file could not be removed", slog.String("file", name), slog.Any("err", err))
	}
}
