package catalog

import (
	"maps"
	"slices"
	"strings"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// renameInProperties keeps what properties say of a column.
func (a *alteration) renameInProperties(from, to string) {
	if a.t.Properties[propVersionColumn] == from {
		a.t.Properties[propVersionColumn] = to
	}
	for _, suffix := range []string{aggSuffix, delimiterSuffix} {
		if v, ok := a.t.Properties[fieldsPrefix+from+suffix]; ok {
			delete(a.t.Properties, fieldsPrefix+from+suffix)
			a.t.Properties[fieldsPrefix+to+suffix] = v
		}
	}
}

func (a *alteration) setProperties(props map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(props)) {
		fixed, err := a.isBucketing(key, props[key])
		switch {
		case err != nil:
			return err
		case fixed:
			continue
		case a.t.Properties == nil:
			a.t.Properties = map[string]string{}
		}
		a.t.Properties[key] = props[key]
	}
	return nil
}

// isBucketing says whether a property is another spelling of what is fixed at
// creation, and has the value that it has.
func (a *alteration) isBucketing(key, value string) (bool, error) {
	if key != propBucketNum && key != propBucketKey {
		return false, nil
	}
	names := a.t.Names(a.t.BucketKey)
	spec := Spec{Properties: map[string]string{key: value}}
	bucketKey, buckets, err := spec.bucketing()
	if err != nil {
		return false, err
	}
	if key == propBucketNum && buckets != a.t.Buckets || key == propBucketKey && !slices.Equal(bucketKey, names) {
		return false, fixedProperty(key)
	}
	return true, nil
}

func (a *alteration) resetProperties(keys []string) error {
	for _, key := range keys {
		_, set := a.t.Properties[key]
		_, ours := known[key]
		switch {
		case key == propBucketNum || key == propBucketKey:
			return fixedProperty(key)
		case !set && !ours && reserved(key) && !strings.HasPrefix(key, fieldsPrefix):
			return unknownProperty(key)
		}
		delete(a.t.Properties, key)
	}
	if len(a.t.Properties) == 0 {
		a.t.Properties = nil
	}
	return nil
}

func fixedProperty(key string) error {
	return field(errs.InvalidProperty, key, "property %q is fixed when a table is created", key)
}

// checkFixed refuses options that an ALTER must not change, since what is stored
// hangs on them.
func checkFixed(was, is *millrace.TableOptions) error {
	switch {
	case is.MergeEngine != was.MergeEngine:
		return fixedProperty(propMergeEngine)
	case is.VersionColumn != was.VersionColumn:
		return fixedProperty(propVersionColumn)
	case !maps.Equal(is.Aggregates, was.Aggregates):
		return field(errs.InvalidProperty, fieldsPrefix, "how columns are aggregated (fields.<column>%s, fields.<column>%s) is fixed when a table is created", aggSuffix, delimiterSuffix)
	case is.Image != was.Image:
		return fixedProperty(propImage)
	case was.Lake != nil && is.Lake.SystemColumns != was.Lake.SystemColumns:
		return field(errs.InvalidProperty, propLakeSystemColumns, "property %q is fixed once the table is in the lake, whose rows have these columns or do not", propLakeSystemColumns)
	case was.Lake != nil && is.Lake.Format != was.Lake.Format:
		return field(errs.InvalidProperty, propLakeFormat, "property %q is fixed once the table is in the lake", propLakeFormat)
	}
	return nil
}
