package catalog

import (
	"cmp"
	"context"
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// MaxPurges is how many lake tables may wait to be removed.
const MaxPurges = 10_000

// addPurge notes that the lake table of a table that is being dropped is to be removed.
// REQUIRES: s came from edit.
func (c *Catalog) addPurge(s *snapshot, t *millrace.Table) ([]Write, error) {
	if len(s.purges) >= MaxPurges {
		return nil, errs.New(errs.Unavailable, "%d lake tables of dropped tables wait to be removed, the most that may; drop table %q without purge, or when the lake has let go of some", len(s.purges), t.Path)
	}
	p := &millrace.Purge{Table: t.ID, Path: t.Path, DroppedAt: micros(c.clock())}
	i, _ := s.findPurge(t.ID)
	s.purges = slices.Insert(slices.Clip(s.purges), i, p)
	s.head.FeatureLevel = max(s.head.FeatureLevel, FeaturePurges)
	return []Write{{Key: purgeKey(t.ID), Value: encodeRecord(recordOfPurge(p))}}, nil
}

func (s *snapshot) findPurge(id millrace.TableID) (int, bool) {
	return slices.BinarySearchFunc(s.purges, id, func(p *millrace.Purge, id millrace.TableID) int { return cmp.Compare(p.Table, id) })
}

// Purges are the dropped tables whose lake tables are still to be removed, by number. The
// slice is not to be changed.
func (c *Catalog) Purges() []*millrace.Purge { return c.current.Load().purges }

// Purged forgets a purge, since nothing is left to remove; one that is not there is no error.
func (c *Catalog) Purged(ctx context.Context, id millrace.TableID) error {
	if _, there := c.current.Load().findPurge(id); !there {
		return nil
	}
	return c.commit(ctx, func(s *snapshot) ([]Write, error) {
		if i, there := s.findPurge(id); there {
			s.purges = slices.Delete(slices.Clone(s.purges), i, i+1)
		}
		return []Write{{Key: purgeKey(id)}}, nil
	})
}
