package iceberg

import (
	"context"
	"errors"
	"time"

	"github.com/apache/iceberg-go/table"

	"github.com/millrace/millrace/lake"
)

// Snapshots expire in groups, since each time makes a version of the metadata: when
// there are expireGroup of them, or when one is overdue by expireLate.
const (
	expireGroup = 10
	expireLate  = time.Hour
)

// expire lets go of snapshots that are old, or too many.
func (t *lakeTable) expire(ctx context.Context, done *lake.Maintained) error {
	v, _, err := t.current(ctx)
	if err != nil {
		return err
	}
	head := v.meta.CurrentSnapshot()
	if head == nil {
		return nil
	}
	ids, late := expired(v.meta, t.f.o.Clock.Now(), maxSnapshots)
	if len(ids) < expireGroup && !late {
		return nil
	}
	v, err = t.pointer.publish(ctx, change{
		seen:         v,
		requirements: []table.Requirement{table.AssertTableUUID(v.meta.TableUUID()), table.AssertRefSnapshotID(table.MainBranch, &head.SnapshotID)},
		updates:      []table.Update{table.NewRemoveSnapshotsUpdate(ids, false)},
	})
	if errors.Is(err, errConflict) {
		return nil // a commit came in between; there is a next time
	}
	if err != nil {
		return err
	}
	t.see(v)
	done.SnapshotsExpired += len(ids)
	return nil
}

// expired are the snapshots that may go, and whether one of them is overdue; most stay
// if there are no old ones among them. The newest stays, what branches and tags name, and the one that says how far the table
// is when other writers' snapshots after it do not.
func expired(meta table.Metadata, now time.Time, most int) (ids []int64, late bool) {
	keep := map[int64]bool{}
	for _, ref := range meta.Refs() {
		keep[ref.SnapshotID] = true
	}
	replaced := map[int64]time.Time{} // when, of the newest one's ancestors
	rank := map[int64]int{}
	told := false
	for s := meta.CurrentSnapshot(); s != nil; {
		if !told {
			keep[s.SnapshotID] = true
			told = s.Summary != nil && s.Summary.Properties[keyRound] != ""
		}
		rank[s.SnapshotID] = len(rank)
		if s.ParentSnapshotID == nil {
			break
		}
		if _, seen := rank[*s.ParentSnapshotID]; seen {
			break
		}
		replaced[*s.ParentSnapshotID] = time.UnixMilli(s.TimestampMs)
		s = meta.SnapshotByID(*s.ParentSnapshotID)
	}
	for _, s := range meta.Snapshots() {
		if keep[s.SnapshotID] {
			continue
		}
		since, ok := replaced[s.SnapshotID]
		if !ok { // it was never an ancestor, such as what was rolled back
			since = time.UnixMilli(s.TimestampMs)
		}
		age := now.Sub(since)
		if age >= keepFor || rank[s.SnapshotID] >= most && age >= lake.ReadGrace {
			ids = append(ids, s.SnapshotID)
			late = late || age >= keepFor+expireLate
		}
	}
	return ids, late
}
