package catalog

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Properties that are another spelling of a field of the Spec.
const (
	propBucketNum = "bucket.num"
	propBucketKey = "bucket.key"
)

const (
	propLogTTL        = "table.log.ttl"
	propLocalTTL      = "table.log.local-ttl"
	propImage         = "table.changelog.image"
	propSkipUnchanged = "table.changelog.skip-unchanged"
	propDeletes       = "table.delete.behavior"
	propMergeEngine   = "table.merge-engine"
	propVersionColumn = "table.merge-engine.versioned.ver-column"

	propDynamic       = "table.partition.dynamic"
	propAuto          = "table.auto-partition.enabled"
	propAutoKey       = "table.auto-partition.key"
	propAutoUnit      = "table.auto-partition.time-unit"
	propAutoZone      = "table.auto-partition.time-zone"
	propAutoPrecreate = "table.auto-partition.num-precreate"
	propAutoRetention = "table.auto-partition.num-retention"

	propLake              = "table.datalake.enabled"
	propLakeFormat        = "table.datalake.format"
	propLakeFreshness     = "table.datalake.freshness"
	propLakeCompaction    = "table.datalake.auto-compaction"
	propLakeExpiry        = "table.datalake.expire-snapshots"
	propLakeFileSize      = "table.datalake.target-file-size"
	propLakeSystemColumns = "table.datalake.system-columns"
	propLakeDeleteMode    = "table.datalake.iceberg.delete-mode"

	fieldsPrefix    = "fields."
	aggSuffix       = ".agg"
	delimiterSuffix = ".listagg-delimiter"
)

// maxPropertyKey is the longest key of a property; fields.<column>.agg is one for any
// column.
const maxPropertyKey = millrace.MaxNameBytes + 56

// property is a known property. normal checks a value and returns the spelling
// that values are compared in.
type property struct {
	normal func(value string) (string, error)
	// standard is the value that says what happens without the property, in normal
	// spelling; "" when there is none.
	standard string
	// later names what a value other than the standard one asks of a later release.
	later string
	// keyed and partitioned say of which tables alone the property can be; for a table
	// without partitions standard values pass.
	keyed, partitioned bool
}

const (
	laterPaimon = "lake tables of Paimon (table.datalake.format)"
)

func properties() map[string]property {
	return map[string]property{
		propLogTTL:   {normal: duration, standard: "7d"},
		propLocalTTL: {normal: duration},

		propImage:         {normal: oneOf("FULL", "WAL"), standard: "FULL", keyed: true},
		propSkipUnchanged: {normal: boolean, standard: "false", keyed: true},
		propDeletes:       {normal: oneOf("ALLOW", "IGNORE", "DISABLE"), standard: "ALLOW", keyed: true},
		propMergeEngine:   {normal: oneOf("none", "first_row", "versioned", "aggregation"), standard: "none", keyed: true},
		propVersionColumn: {normal: text, keyed: true},

		propDynamic:       {normal: boolean, standard: "true", partitioned: true},
		propAuto:          {normal: boolean, standard: "false", partitioned: true},
		propAutoKey:       {normal: text, partitioned: true},
		propAutoUnit:      {normal: oneOf("HOUR", "DAY", "MONTH", "QUARTER", "YEAR"), standard: "DAY", partitioned: true},
		propAutoZone:      {normal: text, standard: "UTC", partitioned: true},
		propAutoPrecreate: {normal: number, standard: "2", partitioned: true},
		propAutoRetention: {normal: number, standard: "7", partitioned: true},

		propLake:              {normal: boolean, standard: "false"},
		propLakeFormat:        {normal: oneOf("iceberg", "paimon"), standard: "iceberg", later: laterPaimon},
		propLakeFreshness:     {normal: durationWithin(minFreshness, maxFreshness), standard: millrace.FormatDuration(millrace.DefaultLakeFreshness)},
		propLakeCompaction:    {normal: boolean, standard: "true"},
		propLakeExpiry:        {normal: boolean, standard: "true"},
		propLakeFileSize:      {normal: sizeWithin(minLakeFile, maxLakeFile), standard: millrace.FormatSize(millrace.DefaultTargetFileBytes)},
		propLakeSystemColumns: {normal: boolean, standard: "false"},
		propLakeDeleteMode:    {normal: oneOf(string(millrace.PositionDeletes), string(millrace.RewriteFiles)), standard: string(millrace.PositionDeletes), keyed: true},
	}
}

var known = properties()

// reserved says whether a property's key is ours, so that an unknown one is a mistake.
func reserved(key string) bool {
	return strings.HasPrefix(key, "table.") || strings.HasPrefix(key, "bucket.") || strings.HasPrefix(key, fieldsPrefix)
}

// settings are the known properties of a table, in normal spelling, and those of
// its columns as they stand.
type settings map[string]string

// is says whether the property has a value other than the standard one.
func (s settings) is(key string) bool {
	v, ok := s[key]
	return ok && v != known[key].standard
}

// or is the property's value, or the standard one.
func (s settings) or(key string) string {
	if v, ok := s[key]; ok {
		return v
	}
	return known[key].standard
}

// checkProperties checks each property of t by name and value, and returns those
// that are ours.
func checkProperties(t *millrace.Table) (settings, error) {
	s := settings{}
	for _, key := range slices.Sorted(maps.Keys(t.Properties)) {
		if err := s.check(t, key, t.Properties[key]); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s settings) check(t *millrace.Table, key, value string) error {
	switch {
	case key == "" || len(key) > maxPropertyKey:
		return field(errs.InvalidProperty, clipped(key), "the key of a property has 1 to %d bytes, not %d", maxPropertyKey, len(key))
	case !reserved(key):
		return nil
	case strings.HasPrefix(key, fieldsPrefix):
		s[key] = value
		return nil
	}
	p, ok := known[key]
	if !ok {
		return unknownProperty(key)
	}
	normal, err := p.normal(value)
	switch {
	case err != nil:
		return field(errs.InvalidProperty, key, "property %q is %s; it is %v", key, clip(value), err)
	case p.keyed && !t.Keyed():
		return field(errs.InvalidProperty, key, "property %q is for tables with a primary key", key)
	case p.partitioned && !t.Partitioned() && normal != p.standard:
		return field(errs.InvalidProperty, key, "property %q is for partitioned tables", key)
	case p.later != "" && normal != p.standard:
		return notYet(key, p.later)
	}
	s[key] = normal
	return nil
}

func unknownProperty(key string) error {
	return field(errs.InvalidProperty, clipped(key), "there is no property %s; keys under table., bucket. and fields. are reserved", clip(key))
}

// namedColumn is the column that a property names.
func namedColumn(t *millrace.Table, key, name string) (millrace.Column, error) {
	i := t.Schema.Index(name)
	if i < 0 {
		return millrace.Column{}, field(errs.InvalidProperty, clipped(key), "property %s names %s, which is not a column of the table", clip(key), clip(name))
	}
	return t.Schema.Columns[i], nil
}

// bucketing is the bucket key and the number of buckets, from the fields or from
// the properties that say the same.
func (spec *Spec) bucketing() (bucketKey []string, buckets int, err error) {
	bucketKey, buckets = spec.BucketKey, 1
	if spec.Buckets != nil {
		buckets = *spec.Buckets
	}
	if v, ok := spec.Properties[propBucketNum]; ok {
		n, err := strconv.Atoi(v)
		if err != nil {
			return nil, 0, field(errs.InvalidProperty, propBucketNum, "property %q is %s; it is a number", propBucketNum, clip(v))
		}
		if spec.Buckets != nil && n != buckets {
			return nil, 0, field(errs.InvalidProperty, propBucketNum, "property %q is %d and buckets is %d; they are the same setting", propBucketNum, n, buckets)
		}
		buckets = n
	}
	if v, ok := spec.Properties[propBucketKey]; ok {
		names := splitNames(v)
		if len(bucketKey) > 0 && !slices.Equal(bucketKey, names) {
			return nil, 0, field(errs.InvalidProperty, propBucketKey, "property %q is %s and bucket_key is %q; they are the same setting", propBucketKey, clip(v), bucketKey)
		}
		bucketKey = names
	}
	return bucketKey, buckets, nil
}

func splitNames(list string) []string {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		names = append(names, strings.TrimSpace(name))
	}
	return names
}
