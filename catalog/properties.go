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
	propMergeEngine  = "table.merge-engine"
	propVersionCol   = "table.merge-engine.versioned.ver-column"
	engineVersioned  = "versioned"
	engineAggregates = "aggregation"

	fieldsPrefix    = "fields."
	aggSuffix       = ".agg"
	delimiterSuffix = ".listagg-delimiter"
)

// maxPropertyKey is the longest key of a property.
const maxPropertyKey = 200

// property is a known property. normal checks a value and returns the spelling
// that values are compared in.
type property struct {
	normal func(value string) (string, error)
	// standard is the value that says what happens without the property, in normal
	// spelling; "" when there is none. Other values are refused until feature is there.
	standard string
	feature  string
	keyed    bool // only for keyed tables
}

const (
	featureRetention  = "log retention other than 7d (table.log.ttl)"
	featureRemote     = "remote segments (table.log.local-ttl)"
	featureImage      = "changelog images other than FULL (table.changelog.image)"
	featureUnchanged  = "skipping unchanged rows (table.changelog.skip-unchanged)"
	featureDeletes    = "delete behaviours other than ALLOW (table.delete.behavior)"
	featureMerge      = "merge engines (table.merge-engine)"
	featurePartitions = "partitioned tables (table.partition, table.auto-partition)"
	featureLake       = "the lake (table.datalake)"
)

func properties() map[string]property {
	return map[string]property{
		"table.log.ttl":       {normal: duration, standard: "7d", feature: featureRetention},
		"table.log.local-ttl": {normal: duration, feature: featureRemote},

		"table.changelog.image":          {normal: oneOf("FULL", "WAL"), standard: "FULL", feature: featureImage, keyed: true},
		"table.changelog.skip-unchanged": {normal: boolean, standard: "false", feature: featureUnchanged, keyed: true},
		"table.delete.behavior":          {normal: oneOf("ALLOW", "IGNORE", "DISABLE"), standard: "ALLOW", feature: featureDeletes, keyed: true},
		propMergeEngine:                  {normal: oneOf("none", "first_row", engineVersioned, engineAggregates), standard: "none", feature: featureMerge, keyed: true},
		propVersionCol:                   {normal: text, feature: featureMerge, keyed: true},

		"table.partition.dynamic":            {normal: boolean, standard: "true", feature: featurePartitions},
		"table.auto-partition.enabled":       {normal: boolean, standard: "false", feature: featurePartitions},
		"table.auto-partition.key":           {normal: text, feature: featurePartitions},
		"table.auto-partition.time-unit":     {normal: oneOf("HOUR", "DAY", "MONTH", "QUARTER", "YEAR"), feature: featurePartitions},
		"table.auto-partition.time-zone":     {normal: text, feature: featurePartitions},
		"table.auto-partition.num-precreate": {normal: number, standard: "2", feature: featurePartitions},
		"table.auto-partition.num-retention": {normal: number, standard: "7", feature: featurePartitions},

		"table.datalake.enabled":             {normal: boolean, standard: "false", feature: featureLake},
		"table.datalake.format":              {normal: oneOf("iceberg", "paimon"), standard: "iceberg", feature: featureLake},
		"table.datalake.freshness":           {normal: duration, standard: "3min", feature: featureLake},
		"table.datalake.auto-compaction":     {normal: boolean, feature: featureLake},
		"table.datalake.expire-snapshots":    {normal: boolean, feature: featureLake},
		"table.datalake.target-file-size":    {normal: text, feature: featureLake},
		"table.datalake.system-columns":      {normal: boolean, standard: "false", feature: featureLake},
		"table.datalake.iceberg.delete-mode": {normal: text, feature: featureLake},
	}
}

var known = properties()

// reserved says whether a property's key is ours, so that an unknown one is a mistake.
func reserved(key string) bool {
	return strings.HasPrefix(key, "table.") || strings.HasPrefix(key, "bucket.") || strings.HasPrefix(key, fieldsPrefix)
}

// checkProperties checks every property by name and value, for the table that
// def describes.
func checkProperties(props map[string]string, def *definition) error {
	for _, key := range slices.Sorted(maps.Keys(props)) {
		if err := checkProperty(key, props[key], props, def); err != nil {
			return err
		}
	}
	return nil
}

func checkProperty(key, value string, props map[string]string, def *definition) error {
	switch {
	case key == "" || len(key) > maxPropertyKey:
		return field(errs.InvalidProperty, clipped(key), "the key of a property has 1 to %d bytes, not %d", maxPropertyKey, len(key))
	case !reserved(key), key == propBucketNum, key == propBucketKey:
		return nil // the latter two: bucketing has checked them
	case strings.HasPrefix(key, fieldsPrefix):
		return checkFieldProperty(key, value, props, def)
	}
	p, ok := known[key]
	if !ok {
		return unknownProperty(key)
	}
	if _, err := p.normal(value); err != nil {
		return field(errs.InvalidProperty, key, "property %q is %s; it is %v", key, clip(value), err)
	}
	if p.keyed && def.kind != millrace.KeyedTable {
		return field(errs.InvalidProperty, key, "property %q is for tables with a primary key", key)
	}
	if key == propVersionCol {
		if !engineIs(props, engineVersioned) {
			return field(errs.InvalidProperty, key, "property %q needs %s = %s", key, propMergeEngine, engineVersioned)
		}
		return def.checkNamed(key, value)
	}
	return nil
}

func unknownProperty(key string) error {
	return field(errs.InvalidProperty, clipped(key), "there is no property %s; keys under table., bucket. and fields. are reserved", clip(key))
}

func engineIs(props map[string]string, engine string) bool {
	return strings.EqualFold(props[propMergeEngine], engine)
}

func (def *definition) checkNamed(key, column string) error {
	if !slices.ContainsFunc(def.columns, func(c millrace.Column) bool { return c.Name == column }) {
		return field(errs.InvalidProperty, clipped(key), "property %s names %s, which is not a column of the table", clip(key), clip(column))
	}
	return nil
}

// checkFieldProperty checks fields.<column>.agg and fields.<column>.listagg-delimiter.
func checkFieldProperty(key, value string, props map[string]string, def *definition) error {
	rest := strings.TrimPrefix(key, fieldsPrefix)
	column, agg := strings.CutSuffix(rest, aggSuffix)
	if !agg {
		var ok bool
		if column, ok = strings.CutSuffix(rest, delimiterSuffix); !ok {
			return unknownProperty(key)
		}
	}
	if err := def.checkNamed(key, column); err != nil {
		return err
	}
	if agg {
		if _, err := aggregate(value); err != nil {
			return field(errs.InvalidProperty, key, "property %q is %s; it is %v", key, clip(value), err)
		}
	}
	if !engineIs(props, engineAggregates) {
		return field(errs.InvalidProperty, key, "property %q needs %s = %s", key, propMergeEngine, engineAggregates)
	}
	return nil
}

// refuseLaterProperties refuses values that say something this release cannot do.
// REQUIRES: checkProperties found nothing wrong.
func refuseLaterProperties(props map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(props)) {
		p, ok := known[key]
		if !ok {
			continue // a free key; fields.* have been refused by their merge engine, which sorts after them
		}
		if v, err := p.normal(props[key]); err != nil || v != p.standard {
			return notYet(key, p.feature)
		}
	}
	return nil
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
		var names []string
		for name := range strings.SplitSeq(v, ",") {
			names = append(names, strings.TrimSpace(name))
		}
		if len(bucketKey) > 0 && !slices.Equal(bucketKey, names) {
			return nil, 0, field(errs.InvalidProperty, propBucketKey, "property %q is %s and bucket_key is %q; they are the same setting", propBucketKey, clip(v), bucketKey)
		}
		bucketKey = names
	}
	return bucketKey, buckets, nil
}
