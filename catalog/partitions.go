package catalog

import (
	"cmp"
	"context"
	"errors"
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row/jsonrow"
)

// partitions are those of one table. They are immutable; ids rise, so a new one is
// the last of byID.
type partitions struct {
	byName, byID []*millrace.Partition
}

var partitionStates = []millrace.PartitionState{
	millrace.PartitionOpen, millrace.PartitionClosing, millrace.PartitionSealed, millrace.PartitionExpired,
}

func (ps *partitions) all() []*millrace.Partition {
	if ps == nil {
		return nil
	}
	return ps.byName
}

func (ps *partitions) named(name string) *millrace.Partition {
	if ps != nil {
		if i, ok := ps.findName(name); ok {
			return ps.byName[i]
		}
	}
	return nil
}

func (ps *partitions) findName(name string) (int, bool) {
	return slices.BinarySearchFunc(ps.byName, name, func(p *millrace.Partition, n string) int { return cmp.Compare(p.Name, n) })
}

func (ps *partitions) findID(id millrace.PartitionID) (int, bool) {
	return slices.BinarySearchFunc(ps.byID, id, func(p *millrace.Partition, id millrace.PartitionID) int { return cmp.Compare(p.ID, id) })
}

// withID is the partition with an id, nil when there is none.
func (ps *partitions) withID(id millrace.PartitionID) *millrace.Partition {
	if ps != nil {
		if i, ok := ps.findID(id); ok {
			return ps.byID[i]
		}
	}
	return nil
}

// with is a copy that has p, in the place of the one with its id or as a new one.
func (ps *partitions) with(p *millrace.Partition) *partitions {
	if ps == nil {
		return &partitions{byName: []*millrace.Partition{p}, byID: []*millrace.Partition{p}}
	}
	i, there := ps.findName(p.Name)
	j, _ := ps.findID(p.ID)
	if !there {
		return &partitions{byName: insert(ps.byName, i, p), byID: insert(ps.byID, j, p)}
	}
	next := &partitions{byName: slices.Clone(ps.byName), byID: slices.Clone(ps.byID)}
	next.byName[i], next.byID[j] = p, p
	return next
}

// without is a copy that lacks p. REQUIRES: it is one of them.
func (ps *partitions) without(p *millrace.Partition) *partitions {
	i, _ := ps.findName(p.Name)
	j, _ := ps.findID(p.ID)
	return &partitions{byName: slices.Delete(slices.Clone(ps.byName), i, i+1), byID: slices.Delete(slices.Clone(ps.byID), j, j+1)}
}

// insert is slices.Insert into a copy, made in one go.
func insert(ps []*millrace.Partition, i int, p *millrace.Partition) []*millrace.Partition {
	next := make([]*millrace.Partition, len(ps)+1)
	copy(next, ps[:i])
	next[i] = p
	copy(next[i+1:], ps[i:])
	return next
}

// Partitions returns all partitions of a table by name, none of one that is not
// partitioned. The slice is not to be changed.
func (c *Catalog) Partitions(ctx context.Context, id millrace.TableID) ([]*millrace.Partition, error) {
	return look(ctx, c, func(s *snapshot) ([]*millrace.Partition, ref, error) {
		_, err := s.tableByID(id)
		return s.partitions[id].all(), ref{table: id}, err
	})
}

// Partition returns a partition by its name, in which values may be spelled in
// another way than the canonical one.
func (c *Catalog) Partition(ctx context.Context, id millrace.TableID, name string) (*millrace.Partition, error) {
	return look(ctx, c, func(s *snapshot) (*millrace.Partition, ref, error) {
		p, err := s.partition(id, name)
		if err != nil {
			return nil, ref{}, err
		}
		return p, ref{id, p.ID}, nil
	})
}

func (s *snapshot) partition(id millrace.TableID, name string) (*millrace.Partition, error) {
	t, err := s.partitionedTable(id)
	if err != nil {
		return nil, err
	}
	ps := s.partitions[id]
	if p := ps.named(name); p != nil {
		return p, nil
	}
	values, err := jsonrow.PartitionOfName(t.Table, name)
	if err != nil {
		return nil, err
	}
	canonical := millrace.PartitionName(t.Names(t.PartitionBy), values)
	if p := ps.named(canonical); p != nil {
		return p, nil
	}
	return nil, errs.New(errs.PartitionNotFound, "table %q has no partition %s", t.Path, clip(canonical))
}

// PartitionByID returns a partition by its id.
func (c *Catalog) PartitionByID(ctx context.Context, table millrace.TableID, id millrace.PartitionID) (*millrace.Partition, error) {
	return look(ctx, c, func(s *snapshot) (*millrace.Partition, ref, error) {
		t, err := s.partitionedTable(table)
		if err != nil {
			return nil, ref{}, err
		}
		p, err := s.partitionByID(t, id)
		return p, ref{table, id}, err
	})
}

func (s *snapshot) partitionByID(t *table, id millrace.PartitionID) (*millrace.Partition, error) {
	if p := s.partitions[t.ID].withID(id); p != nil {
		return p, nil
	}
	return nil, errs.New(errs.PartitionNotFound, "table %q has no partition with id %d", t.Path, id)
}

func (s *snapshot) partitionedTable(id millrace.TableID) (*table, error) {
	t, err := s.tableByID(id)
	if err != nil {
		return nil, err
	}
	if !t.Partitioned() {
		return nil, errs.New(errs.WrongTableKind, "table %q is not partitioned", t.Path)
	}
	return t, nil
}

// errPartitionExists ends a change that finds its partition there already.
var errPartitionExists = errors.New("the partition is there")

// EnsurePartition returns the partition with the given values, texts in the order of
// Table.PartitionBy, and makes it when there is none; of callers that come at once
// one has created it. While it is being dropped the error is unavailable; when it is past open, or its time is past keeping, the error
// is partition_expired.
func (c *Catalog) EnsurePartition(ctx context.Context, id millrace.TableID, values []string) (p *millrace.Partition, created bool, err error) {
	return c.EnsurePartitionIf(ctx, id, values, nil)
}

// EnsurePartitionIf is EnsurePartition of a table that a function lets partitions be made in
// when one is.
func (c *Catalog) EnsurePartitionIf(ctx context.Context, id millrace.TableID, values []string, may func(*millrace.Table) error) (p *millrace.Partition, created bool, err error) {
	var name string
	var canonical []string
	t, err := look(ctx, c, func(s *snapshot) (t *table, at ref, err error) {
		if t, err = s.partitionedTable(id); err != nil {
			return nil, ref{}, err
		}
		columns := t.Names(t.PartitionBy)
		if len(values) == len(columns) {
			// Most often the values are canonical.
			if p = s.partitions[id].named(millrace.PartitionName(columns, values)); p != nil {
				return t, ref{id, p.ID}, nil
			}
		}
		if canonical, err = jsonrow.PartitionOfTexts(t.Table, values); err != nil {
			return nil, ref{}, err
		}
		name = millrace.PartitionName(columns, canonical)
		if p = s.partitions[id].named(name); p != nil {
			return t, ref{id, p.ID}, nil
		}
		return t, ref{table: id}, nil
	})
	if err != nil {
		return nil, false, err
	}
	if p != nil {
		return checkOpen(t, p)
	}
	err = c.commit(ctx, func(s *snapshot) ([]Write, error) {
		t, err := s.partitionedTable(id)
		if err != nil {
			return nil, err
		}
		if err := permitted(may, t.Table); err != nil {
			return nil, err
		}
		ps := s.partitions[id]
		if p = ps.named(name); p != nil {
			return nil, errPartitionExists
		}
		live := millrace.CountLive(ps.all())
		if err := c.checkNewPartition(t, canonical, live, len(ps.all())-live); err != nil {
			return nil, err
		}
		p = &millrace.Partition{
			ID: s.head.NextPartition, Table: id, Name: name, Values: canonical, State: millrace.PartitionOpen,
			Shards: rotate(&s.head, t.Buckets), CreatedAt: micros(c.clock()),
		}
		s.head.NextPartition++
		return s.putPartition(p), nil
	})
	switch {
	case errors.Is(err, errPartitionExists):
		if err := c.settleFound(ctx, ref{id, p.ID}); err != nil {
			return nil, false, err
		}
		return checkOpen(t, p)
	case err != nil:
		return nil, false, err
	}
	return p, true, nil
}

func checkOpen(t *table, p *millrace.Partition) (*millrace.Partition, bool, error) {
	switch {
	case p.Dropping:
		return nil, false, errs.New(errs.Unavailable, "partition %q of table %q is being dropped: when its rows are gone from the lake too, a write makes it anew", p.Name, t.Path)
	case p.State != millrace.PartitionOpen:
		return nil, false, errs.New(errs.PartitionExpired, "partition %q of table %q is %s and takes no more writes", p.Name, t.Path, p.State)
	}
	return p, false, nil
}

// checkNewPartition checks whether a partition with these values may be made beside
// so many others.
func (c *Catalog) checkNewPartition(t *table, values []string, live, expired int) error {
	switch {
	case live >= millrace.MaxPartitions:
		return errs.New(errs.InvalidValue, "table %q has %d partitions, the most that a table may have; drop some first", t.Path, live)
	case expired >= millrace.MaxExpired:
		return errs.New(errs.InvalidValue, "table %q has %d partitions in the lake alone, the most that a table may have; drop some first", t.Path, expired)
	}
	a := t.Options.AutoPartition
	if a == nil {
		return nil
	}
	loc, err := a.Location()
	if err != nil {
		return errs.New(errs.Internal, "%v", err) // it was found when the property was set
	}
	i := slices.Index(t.PartitionBy, a.Column)
	column := t.Columns(t.PartitionBy[i : i+1])[0]
	start, err := a.Unit.Parse(column.Type, values[i], loc)
	if err != nil {
		return field(errs.InvalidValue, column.Name, "column %q: %v", column.Name, err)
	}
	if limit := c.keptFrom(t, loc); start.Before(limit) {
		return field(errs.PartitionExpired, column.Name, "%s=%s is before %s, from which on partitions of table %q are kept (%s)",
			column.Name, values[i], a.Unit.Text(column.Type, limit), t.Path, propAutoRetention)
	}
	return nil
}

// putPartition stores p, a new one or one in another state. REQUIRES: s came from edit.
func (s *snapshot) putPartition(p *millrace.Partition) []Write {
	s.partitions = with(s.partitions, p.Table, s.partitions[p.Table].with(p))
	return []Write{{Key: partitionKey(p.Table, p.ID), Value: encodeRecord(recordOfPartition(p))}}
}

// SetPartitionState moves a partition on in its life, and returns it as it then is.
// One that is there already, or further, is refused.
func (c *Catalog) SetPartitionState(ctx context.Context, table millrace.TableID, id millrace.PartitionID, state millrace.PartitionState) (*millrace.Partition, error) {
	return c.changePartition(ctx, table, id, func(t *millrace.Table, p *millrace.Partition) error {
		if slices.Index(partitionStates, state) <= slices.Index(partitionStates, p.State) {
			return errs.New(errs.InvalidValue, "partition %q of table %q is %s and does not become %s", p.Name, t.Path, p.State, state)
		}
		p.State = state
		if state == millrace.PartitionExpired {
			p.ExpiredAt = micros(c.clock())
		}
		return nil
	})
}

// DropPartition decides that a partition goes, with all its rows, and returns it as it
// then is. It takes no more writes; RemovePartition forgets it.
func (c *Catalog) DropPartition(ctx context.Context, table millrace.TableID, id millrace.PartitionID) (*millrace.Partition, error) {
	return c.changePartition(ctx, table, id, func(_ *millrace.Table, p *millrace.Partition) error {
		if p.Dropping {
			return errUnchanged
		}
		p.Dropping = true
		return nil
	})
}

// PartitionGone notes that the workers have no rows of an expired partition any more,
// and returns it as it then is.
func (c *Catalog) PartitionGone(ctx context.Context, table millrace.TableID, id millrace.PartitionID) (*millrace.Partition, error) {
	return c.changePartition(ctx, table, id, func(t *millrace.Table, p *millrace.Partition) error {
		switch {
		case p.Gone:
			return errUnchanged
		case p.State != millrace.PartitionExpired:
			return errs.New(errs.InvalidValue, "partition %q of table %q is %s, so workers have its rows", p.Name, t.Path, p.State)
		}
		p.Gone = true
		return nil
	})
}

// changePartition replaces a partition by a changed copy, unless change returns an
// error; with errUnchanged it is returned as it is.
func (c *Catalog) changePartition(ctx context.Context, table millrace.TableID, id millrace.PartitionID, change func(*millrace.Table, *millrace.Partition) error) (*millrace.Partition, error) {
	var out *millrace.Partition
	err := c.commit(ctx, func(s *snapshot) ([]Write, error) {
		t, err := s.partitionedTable(table)
		if err != nil {
			return nil, err
		}
		if out, err = s.partitionByID(t, id); err != nil {
			return nil, err
		}
		next := *out
		if err := change(t.Table, &next); err != nil {
			return nil, err
		}
		out = &next
		return s.putPartition(out), nil
	})
	if errors.Is(err, errUnchanged) {
		err = c.settleFound(ctx, ref{table, id})
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// RemovePartition removes a partition and returns it, for its data to be dropped.
func (c *Catalog) RemovePartition(ctx context.Context, table millrace.TableID, id millrace.PartitionID) (*millrace.Partition, error) {
	var removed *millrace.Partition
	err := c.commit(ctx, func(s *snapshot) ([]Write, error) {
		t, err := s.partitionedTable(table)
		if err != nil {
			return nil, err
		}
		if removed, err = s.partitionByID(t, id); err != nil {
			return nil, err
		}
		s.partitions = with(s.partitions, table, s.partitions[table].without(removed))
		return []Write{{Key: partitionKey(table, id)}}, nil
	})
	if err != nil {
		return nil, err
	}
	return removed, nil
}
