package catalog

import (
	"maps"
	"slices"
	"strings"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// resolveOptions checks the properties of t, one by one and together, and returns
// what they say; of a table that is there, t.Options are those it had until now.
// REQUIRES: everything else about t has been checked.
func resolveOptions(t *millrace.Table) (millrace.TableOptions, error) {
	var o millrace.TableOptions
	s, err := checkProperties(t)
	if err != nil {
		return o, err
	}
	if o.LogTTL, err = logTTL(s); err != nil {
		return o, err
	}
	if o.LocalTTL, err = localTTL(s); err != nil {
		return o, err
	}
	if o.MergeEngine = millrace.MergeEngine(s.or(propMergeEngine)); o.MergeEngine == "none" {
		o.MergeEngine = millrace.LastRow
	}
	if o.VersionColumn, err = versionColumn(t, s, o.MergeEngine); err != nil {
		return o, err
	}
	if o.Aggregates, err = aggregates(t, s, o.MergeEngine); err != nil {
		return o, err
	}
	if o.Deletes, err = deleteBehavior(s, o.MergeEngine); err != nil {
		return o, err
	}
	if s.is(propImage) {
		o.Image = millrace.ChangelogImage(s[propImage])
	}
	if o.Image == millrace.WALImage && o.MergeEngine == millrace.Aggregation {
		return o, field(errs.InvalidProperty, propImage, "property %q is WAL, and %s is aggregation, whose changelog makes sense with the old row only; leave it at FULL", propImage, propMergeEngine)
	}
	o.SkipUnchanged = s.is(propSkipUnchanged)
	o.FixedPartitions = s.is(propDynamic)
	if o.AutoPartition, err = autoPartition(t, s); err != nil {
		return o, err
	}
	o.Lake, err = lakeOptions(t, s)
	return o, err
}

// logTTL is how long records are kept, as TableOptions says it.
func logTTL(s settings) (time.Duration, error) {
	if !s.is(propLogTTL) {
		return 0, nil
	}
	ttl, err := millrace.ParseDuration(s[propLogTTL])
	if err != nil {
		return 0, field(errs.InvalidProperty, propLogTTL, "property %q: %v", propLogTTL, err)
	}
	if ttl == 0 {
		return -1, nil
	}
	return ttl, nil
}

// localTTL is how long what the object store has is kept here too, as TableOptions says
// it.
func localTTL(s settings) (time.Duration, error) {
	v, ok := s[propLocalTTL]
	if !ok {
		return 0, nil
	}
	ttl, err := millrace.ParseDuration(v)
	if err != nil {
		return 0, field(errs.InvalidProperty, propLocalTTL, "property %q: %v", propLocalTTL, err)
	}
	if ttl == 0 {
		return -1, nil
	}
	return ttl, nil
}

// deleteBehavior is what becomes of deletes. Those merge engines that fold rows
// ignore them unless told otherwise, as in Fluss.
func deleteBehavior(s settings, engine millrace.MergeEngine) (millrace.DeleteBehavior, error) {
	v, ok := s[propDeletes]
	folding := engine == millrace.FirstRow || engine == millrace.Versioned
	switch {
	case !ok && engine != millrace.LastRow:
		return millrace.IgnoreDeletes, nil
	case v == "ALLOW" && folding:
		return "", field(errs.InvalidProperty, propDeletes, "property %q is ALLOW, and %s is %s, which cannot delete; it is IGNORE or DISABLE", propDeletes, propMergeEngine, engine)
	case !ok || v == "ALLOW":
		return millrace.AllowDeletes, nil
	}
	return millrace.DeleteBehavior(v), nil
}

// versionColumn is the column that the engine versioned compares.
func versionColumn(t *millrace.Table, s settings, engine millrace.MergeEngine) (millrace.ColumnID, error) {
	name, ok := s[propVersionColumn]
	switch {
	case !ok && engine == millrace.Versioned:
		return 0, field(errs.InvalidProperty, propVersionColumn, "%s is versioned, so %q names the column that holds the version", propMergeEngine, propVersionColumn)
	case !ok:
		return 0, nil
	case engine != millrace.Versioned:
		return 0, field(errs.InvalidProperty, propVersionColumn, "property %q needs %s = versioned", propVersionColumn, propMergeEngine)
	}
	c, err := namedColumn(t, propVersionColumn, name)
	if err != nil {
		return 0, err
	}
	switch c.Type.Kind {
	case millrace.TinyInt, millrace.SmallInt, millrace.Int, millrace.BigInt, millrace.Date, millrace.Time, millrace.Timestamp, millrace.TimestampLTZ:
	default:
		return 0, field(errs.InvalidProperty, propVersionColumn, "property %q names %q, which is %s; a version is a whole number, a date or a time", propVersionColumn, name, c.Type)
	}
	switch {
	case slices.Contains(t.PrimaryKey, c.ID):
		return 0, field(errs.InvalidProperty, propVersionColumn, "property %q names %q, which is in the primary key, and so the same in all versions of a row", propVersionColumn, name)
	case c.AutoIncrement:
		return 0, field(errs.InvalidProperty, propVersionColumn, "property %q names %q, which is auto_increment, and so the same in all versions of a row", propVersionColumn, name)
	}
	return c.ID, nil
}

// aggregates are what fields.<column>.agg and fields.<column>.listagg-delimiter say.
func aggregates(t *millrace.Table, s settings, engine millrace.MergeEngine) (map[millrace.ColumnID]millrace.Aggregate, error) {
	var out map[millrace.ColumnID]millrace.Aggregate
	// In this order a column's agg comes before its delimiter.
	for _, key := range slices.Sorted(maps.Keys(s)) {
		rest, ok := strings.CutPrefix(key, fieldsPrefix)
		if !ok {
			continue
		}
		name, isAgg := strings.CutSuffix(rest, aggSuffix)
		if !isAgg {
			if name, ok = strings.CutSuffix(rest, delimiterSuffix); !ok {
				return nil, unknownProperty(key)
			}
		}
		c, err := namedColumn(t, key, name)
		if err != nil {
			return nil, err
		}
		a := out[c.ID]
		if isAgg {
			a.Function, err = aggregateFunction(t, c, key, s[key])
		} else {
			a.Delimiter, err = delimiter(a.Function, key, s[key])
		}
		switch {
		case err != nil:
			return nil, err
		case engine != millrace.Aggregation:
			return nil, field(errs.InvalidProperty, key, "property %q needs %s = aggregation", key, propMergeEngine)
		case out == nil:
			out = map[millrace.ColumnID]millrace.Aggregate{}
		}
		out[c.ID] = a
	}
	return out, nil
}

func delimiter(f millrace.AggregateFunction, key, value string) (string, error) {
	switch {
	case f != millrace.AggListagg:
		return "", field(errs.InvalidProperty, key, "property %q is for columns that are aggregated by listagg", key)
	case value == "":
		return "", field(errs.InvalidProperty, key, "property %q is empty; a delimiter has a character at least", key)
	}
	return value, nil
}

func aggregateFunction(t *millrace.Table, c millrace.Column, key, value string) (millrace.AggregateFunction, error) {
	name, err := aggregateName(value)
	if err != nil {
		return "", field(errs.InvalidProperty, key, "property %q is %s; it is %v", key, clip(value), err)
	}
	f := millrace.AggregateFunction(name)
	switch {
	case slices.Contains(t.PrimaryKey, c.ID):
		return "", field(errs.InvalidProperty, key, "property %q aggregates a column of the primary key, which is the same in all rows that are merged", key)
	case c.AutoIncrement:
		return "", field(errs.InvalidProperty, key, "property %q aggregates an auto_increment column, whose value is given once", key)
	case !f.Takes(c.Type):
		return "", field(errs.InvalidProperty, key, "property %q is %s, which cannot be of %s: %s", key, f, c.Type, aggregateTypes[f])
	}
	return f, nil
}

// aggregateTypes says of which types an aggregate function can be.
var aggregateTypes = map[millrace.AggregateFunction]string{
	millrace.AggSum: "it is of numbers", millrace.AggProduct: "it is of numbers",
	millrace.AggMin: "it is of numbers, text, dates and times", millrace.AggMax: "it is of numbers, text, dates and times",
	millrace.AggListagg: "it is of STRING and CHAR",
	millrace.AggBoolAnd: "it is of BOOLEAN", millrace.AggBoolOr: "it is of BOOLEAN",
}
