package catalog

import (
	"context"
	"slices"
	"strconv"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// autoPartition is what table.auto-partition says, nil when it is not enabled.
func autoPartition(t *millrace.Table, s settings) (*millrace.AutoPartition, error) {
	a := millrace.AutoPartition{Unit: millrace.PartitionUnit(s.or(propAutoUnit))}
	if s.is(propAutoZone) {
		a.Zone = s[propAutoZone]
	}
	if _, err := a.Location(); err != nil {
		return nil, field(errs.InvalidProperty, propAutoZone, "property %q: %v", propAutoZone, err)
	}
	var err error
	if a.Column, err = autoPartitionColumn(t, s, a.Unit); err != nil {
		return nil, err
	}
	if a.Precreate, err = strconv.Atoi(s.or(propAutoPrecreate)); err != nil {
		return nil, field(errs.InvalidProperty, propAutoPrecreate, "property %q: %v", propAutoPrecreate, err)
	}
	if a.Retain, err = strconv.Atoi(s.or(propAutoRetention)); err != nil {
		return nil, field(errs.InvalidProperty, propAutoRetention, "property %q: %v", propAutoRetention, err)
	}
	if len(t.PartitionBy) > 1 {
		// What the other columns will hold is not known ahead of time.
		if _, ok := s[propAutoPrecreate]; ok && a.Precreate > 0 {
			return nil, field(errs.InvalidProperty, propAutoPrecreate, "property %q is %d, and the table is partitioned by several columns, so its partitions cannot be made ahead of time; it is 0", propAutoPrecreate, a.Precreate)
		}
		a.Precreate = 0
	}
	if a.Precreate > millrace.MaxPartitions || a.Retain > millrace.MaxPartitions || a.Precreate+a.Retain > millrace.MaxPartitions {
		return nil, field(errs.InvalidProperty, propAutoRetention, "%s is %d and %s is %d; a table has at most %d partitions", propAutoPrecreate, a.Precreate, propAutoRetention, a.Retain, millrace.MaxPartitions)
	}
	if !s.is(propAuto) {
		return nil, nil
	}
	return &a, nil
}

// autoPartitionColumn is the partition column that holds the time.
func autoPartitionColumn(t *millrace.Table, s settings, unit millrace.PartitionUnit) (millrace.ColumnID, error) {
	name, ok := s[propAutoKey]
	switch {
	case !ok && s.is(propAuto) && len(t.PartitionBy) > 1:
		return 0, field(errs.InvalidProperty, propAutoKey, "the table is partitioned by several columns, so %q says which of them holds the time", propAutoKey)
	case !ok && !s.is(propAuto):
		return 0, nil
	case !ok:
		name = t.Names(t.PartitionBy)[0]
	}
	c, err := namedColumn(t, propAutoKey, name)
	if err != nil {
		return 0, err
	}
	if !slices.Contains(t.PartitionBy, c.ID) {
		return 0, field(errs.InvalidProperty, propAutoKey, "property %q names %q, which is not in partition_by", propAutoKey, name)
	}
	switch c.Type.Kind {
	case millrace.String, millrace.Char, millrace.Int, millrace.BigInt, millrace.Timestamp, millrace.TimestampLTZ:
	case millrace.Date:
		if unit == millrace.Hourly {
			return 0, field(errs.InvalidProperty, propAutoUnit, "property %q is HOUR, and column %q is DATE, which holds no hour", propAutoUnit, name)
		}
	default:
		return 0, field(errs.InvalidProperty, propAutoKey, "column %q is %s, and cannot hold the time of an auto-partition; it is STRING, INT, BIGINT, DATE or a timestamp", name, c.Type)
	}
	if n := len("2026082607"); c.Type.Kind == millrace.Char && c.Type.Length < n {
		return 0, field(errs.InvalidProperty, propAutoKey, "column %q is %s; the time of an auto-partition takes up to %d characters", name, c.Type, n)
	}
	return c.ID, nil
}

// keptFrom is the time from which on auto-partitions of t may be made: the oldest
// that is kept by now, and none that was expired before, whatever clock and
// properties have said since. REQUIRES: t is auto-partitioned; loc is its zone.
func (c *Catalog) keptFrom(t *table, loc *time.Location) time.Time {
	a := t.Options.AutoPartition
	oldest := a.Unit.Add(a.Unit.Start(c.clock().In(loc)), -a.Retain)
	if t.expired.After(oldest) {
		return t.expired.In(loc)
	}
	return oldest
}

// ExpirePartitions says that auto-partitions of a table whose time begins before a
// time are never made again. The time only rises: an earlier one changes nothing.
func (c *Catalog) ExpirePartitions(ctx context.Context, id millrace.TableID, before time.Time) error {
	before = micros(before)
	t, err := look(ctx, c, func(s *snapshot) (*table, ref, error) {
		t, err := s.partitionedTable(id)
		return t, ref{}, err
	})
	if err != nil || !before.After(t.expired) {
		return err
	}
	return c.commit(ctx, func(s *snapshot) ([]Write, error) {
		t, err := s.partitionedTable(id)
		if err != nil {
			return nil, err
		}
		next := *t
		if before.After(t.expired) {
			next.expired = before
		}
		s.replaceTable(&next)
		return next.writes()
	})
}
