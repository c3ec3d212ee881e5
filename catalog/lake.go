package catalog

import (
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Bounds of what properties say of the lake. Files below the least size would cost a
// store more in requests than in bytes.
const (
	minFreshness = time.Second
	maxFreshness = 30 * 24 * time.Hour
	minLakeFile  = 1 << 20
	maxLakeFile  = 4 << 30
)

// lakeOptions is what table.datalake says: nil when it is not enabled and never was.
func lakeOptions(t *millrace.Table, s settings) (*millrace.LakeOptions, error) {
	o := millrace.LakeOptions{
		Enabled: s.is(propLake), Format: millrace.LakeFormat(s.or(propLakeFormat)),
		Compact: s.or(propLakeCompaction) == "true", Expire: s.or(propLakeExpiry) == "true", SystemColumns: s.is(propLakeSystemColumns),
	}
	o.Gaps = gaps(t, o.Enabled)
	if t.Keyed() {
		o.Deletes = millrace.LakeDeletes(s.or(propLakeDeleteMode))
	}
	var err error
	if o.Freshness, err = millrace.ParseDuration(s.or(propLakeFreshness)); err != nil {
		return nil, field(errs.InvalidProperty, propLakeFreshness, "property %q: %v", propLakeFreshness, err)
	}
	if o.TargetFileBytes, err = millrace.ParseSize(s.or(propLakeFileSize)); err != nil {
		return nil, field(errs.InvalidProperty, propLakeFileSize, "property %q: %v", propLakeFileSize, err)
	}
	switch {
	case !o.Enabled && t.Options.Lake == nil:
		return nil, nil
	case !o.Enabled:
		return &o, nil
	}
	if path, typ := notHeld(o.Format, "", t.Schema.Columns); path != "" {
		return nil, field(errs.UnsupportedByLake, path,
			"column %q is %s, and %s holds times to the microsecond: a table with %s = true has precisions of at most 6", path, typ, o.Format, propLake)
	}
	return &o, nil
}

// gaps is LakeOptions.Gaps of a table that is made or altered; its options are those from
// before.
func gaps(t *millrace.Table, enabled bool) int64 {
	was := t.Options.Lake
	switch {
	case was == nil && t.ID == 0: // it is new
		return 0
	case was == nil:
		return 1
	case was.Enabled && !enabled:
		return was.Gaps + 1
	}
	return was.Gaps
}

// notHeld is the path of the first field that a lake format cannot hold, and its
// type; "" when there is none.
func notHeld(f millrace.LakeFormat, prefix string, cols []millrace.Column) (path string, typ millrace.DataType) {
	for _, c := range cols {
		path := prefix + c.Name
		switch {
		case f.Holds(c.Type):
		case c.Type.Nested():
			return notHeld(f, path+".", c.Type.Children)
		default:
			return path, c.Type
		}
	}
	return "", typ
}
