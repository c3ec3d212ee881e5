package iceberg

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
)

// What the summary of a snapshot of ours says.
const (
	keyTable       = "millrace.table-id"
	keyRound       = "millrace.round"
	keySchema      = "millrace.schema-id"
	keyCommit      = "millrace.commit-id"
	keyOffsets     = "millrace.offsets"
	keyOffsetsFile = "millrace.offsets-file"
	keySkipped     = "millrace.skipped-records"
	keyGaps        = "millrace.gaps"
)

// maxInlineOffsets is how many bytes of offsets a summary takes; more of them are a
// file, since every version of the metadata repeats the summaries of all snapshots.
const maxInlineOffsets = 1 << 10

// progress is how far a snapshot is.
type progress struct {
	round   int64
	schema  millrace.SchemaID
	offsets lake.Offsets
	skipped int64 // records that rounds have passed over
	gaps    int64 // lake.Snapshot.Gaps
}

// appendOffsets appends {"<partition id>/<bucket>": next, …}, rising by partition and
// bucket.
func appendOffsets(dst []byte, o lake.Offsets) []byte {
	ids := slices.SortedFunc(maps.Keys(o), millrace.BucketID.Compare)
	dst = append(dst, '{')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = fmt.Appendf(dst, `"%d/%d":%d`, id.Partition, id.Bucket, o[id])
	}
	return append(dst, '}')
}

// parseOffsets reads what appendOffsets wrote.
func parseOffsets(t millrace.TableID, raw []byte) (lake.Offsets, error) {
	var texts map[string]int64
	if err := json.Unmarshal(raw, &texts); err != nil {
		return nil, err
	}
	out := make(lake.Offsets, len(texts))
	for k, next := range texts {
		p, b, ok := strings.Cut(k, "/")
		partition, perr := strconv.ParseUint(p, 10, 32)
		bucket, berr := strconv.ParseUint(b, 10, 16)
		if !ok || perr != nil || berr != nil || bucket >= millrace.MaxBuckets || next < 0 {
			return nil, fmt.Errorf("%q: %d is not the offset of a bucket", k, next)
		}
		out[millrace.BucketID{Table: t, Partition: millrace.PartitionID(partition), Bucket: uint16(bucket)}] = millrace.Offset(next)
	}
	return out, nil
}

// progressOf finds how far a snapshot is: as it says itself, or else the next of its
// parents that does, since other writers' compactions do not say it.
func (t *lakeTable) progressOf(ctx context.Context, meta table.Metadata, s *table.Snapshot) (progress, error) {
	for s != nil {
		if s.Summary != nil {
			if props := s.Summary.Properties; props[keyRound] != "" {
				p, err := t.readProgress(ctx, props)
				if err != nil {
					return progress{}, fmt.Errorf("snapshot %d: %w", s.SnapshotID, err)
				}
				return p, nil
			}
		}
		if s.ParentSnapshotID == nil {
			return progress{offsets: lake.Offsets{}}, nil // not even a first round
		}
		parent := meta.SnapshotByID(*s.ParentSnapshotID)
		if parent == nil {
			return progress{}, errs.New(errs.CorruptData, "the snapshots of lake table %s that say how far it is were expired by someone else: snapshot %d is missing", t.location, *s.ParentSnapshotID)
		}
		s = parent
	}
	return progress{offsets: lake.Offsets{}}, nil
}

func (t *lakeTable) readProgress(ctx context.Context, props ice.Properties) (progress, error) {
	if id := props[keyTable]; id != strconv.FormatUint(uint64(t.id), 10) {
		return progress{}, foreign("a snapshot of lake table %s is of table %q, not of table %d", t.location, id, t.id)
	}
	round, rerr := strconv.ParseInt(props[keyRound], 10, 64)
	schema, serr := strconv.ParseUint(props[keySchema], 10, 32)
	if rerr != nil || serr != nil {
		return progress{}, errs.New(errs.CorruptData, "a snapshot of lake table %s has round %q and schema %q", t.location, props[keyRound], props[keySchema])
	}
	var counts [2]int64
	for i, key := range []string{keySkipped, keyGaps} {
		if text := props[key]; text != "" {
			var err error
			if counts[i], err = strconv.ParseInt(text, 10, 64); err != nil || counts[i] < 0 {
				return progress{}, errs.New(errs.CorruptData, "a snapshot of lake table %s has %s %q", t.location, key, text)
			}
		}
	}
	raw, from := []byte(props[keyOffsets]), "summary"
	if name := props[keyOffsetsFile]; name != "" {
		from = name
		body, err := t.f.o.Store.Get(ctx, t.folder+"/metadata/"+name)
		if err != nil {
			return progress{}, storeError(err, "read the offsets of lake table %s, file metadata/%s", t.location, name)
		}
		raw = body
	}
	offsets, err := parseOffsets(t.id, raw)
	if err != nil {
		return progress{}, errs.New(errs.CorruptData, "the offsets of lake table %s, %s, are damaged: %v", t.location, from, err)
	}
	return progress{round: round, schema: millrace.SchemaID(schema), offsets: offsets, skipped: counts[0], gaps: counts[1]}, nil
}
