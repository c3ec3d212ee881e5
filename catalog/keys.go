package catalog

import (
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// setKeys resolves the primary key and the bucket key, and makes their columns
// NOT NULL.
func (def *definition) setKeys(spec *Spec, bucketKey []string) error {
	var err error
	if def.primaryKey, err = def.keyColumns(spec, "primary_key", spec.PrimaryKey); err != nil {
		return err
	}
	if _, err := def.keyColumns(spec, "partition_by", spec.PartitionBy); err != nil {
		return err
	}
	if len(bucketKey) == 0 {
		bucketKey = spec.PrimaryKey
	}
	if def.bucketKey, err = def.keyColumns(spec, "bucket_key", bucketKey); err != nil {
		return err
	}
	for i, name := range bucketKey {
		if def.kind == millrace.KeyedTable && !slices.Contains(spec.PrimaryKey, name) {
			return field(errs.InvalidSchema, "bucket_key", "bucket_key column %q is not in the primary key", name)
		}
		if def.column(def.bucketKey[i]).Type.Kind == millrace.Boolean {
			return field(errs.InvalidSchema, "bucket_key",
				"column %q is BOOLEAN and may not be in the bucket key; name other columns of the primary key in bucket_key", name)
		}
	}
	return nil
}

// keyColumns resolves the names of one key, checks their types and makes the
// columns NOT NULL.
func (def *definition) keyColumns(spec *Spec, key string, names []string) ([]millrace.ColumnID, error) {
	var ids []millrace.ColumnID
	for _, name := range names {
		i := slices.IndexFunc(def.columns, func(c millrace.Column) bool { return c.Name == name })
		if i < 0 {
			return nil, field(errs.InvalidSchema, key, "%s names %s, which is not a column of the table", key, clip(name))
		}
		col := &def.columns[i]
		if slices.Contains(ids, col.ID) {
			return nil, field(errs.InvalidSchema, key, "%s names %q twice", key, name)
		}
		if k := col.Type.Kind; k == millrace.Float || k == millrace.Double || col.Type.Nested() {
			return nil, field(errs.InvalidSchema, key, "column %q is %s and may not be in a key (%s)", name, k, key)
		}
		if explicit := spec.Columns[i].Nullable; explicit != nil && *explicit {
			return nil, field(errs.InvalidSchema, name, "column %q is in %s and so NOT NULL; it cannot be nullable", name, key)
		}
		col.Nullable = false
		ids = append(ids, col.ID)
	}
	return ids, nil
}

// column is the column with the id. REQUIRES: it is one of the table's.
func (def *definition) column(id millrace.ColumnID) millrace.Column {
	return def.columns[slices.IndexFunc(def.columns, func(c millrace.Column) bool { return c.ID == id })]
}
