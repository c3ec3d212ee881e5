package catalog

import (
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// setKeys resolves the primary key, the partition columns and the bucket key, and
// makes their columns NOT NULL.
func setKeys(t *millrace.Table, spec *Spec, bucketKey []string) error {
	var err error
	if t.PrimaryKey, err = keyColumns(t, spec, "primary_key", spec.PrimaryKey); err != nil {
		return err
	}
	if t.PartitionBy, err = keyColumns(t, spec, "partition_by", spec.PartitionBy); err != nil {
		return err
	}
	for i, name := range spec.PartitionBy {
		if t.Keyed() && !slices.Contains(t.PrimaryKey, t.PartitionBy[i]) {
			return field(errs.InvalidSchema, "partition_by", "partition_by column %q is not in the primary key, so one key could have a row in several partitions", name)
		}
	}
	if len(bucketKey) > 0 {
		if t.BucketKey, err = keyColumns(t, spec, "bucket_key", bucketKey); err != nil {
			return err
		}
	} else {
		t.BucketKey = slices.DeleteFunc(slices.Clone(t.PrimaryKey), func(id millrace.ColumnID) bool { return slices.Contains(t.PartitionBy, id) })
	}
	return checkBucketKey(t)
}

func checkBucketKey(t *millrace.Table) error {
	if t.Keyed() && len(t.BucketKey) == 0 {
		return field(errs.InvalidSchema, "primary_key", "the primary key has partition columns only, so each partition would hold one row; add a column to it, or take one out of partition_by")
	}
	for _, c := range t.Columns(t.BucketKey) {
		switch {
		case t.Keyed() && !slices.Contains(t.PrimaryKey, c.ID):
			return field(errs.InvalidSchema, "bucket_key", "bucket_key column %q is not in the primary key", c.Name)
		case slices.Contains(t.PartitionBy, c.ID):
			return field(errs.InvalidSchema, "bucket_key", "bucket_key column %q is in partition_by, and so the same for all rows of a partition", c.Name)
		case c.Type.Kind == millrace.Boolean:
			return field(errs.InvalidSchema, "bucket_key",
				"column %q is BOOLEAN and may not be in the bucket key; name other columns of the primary key in bucket_key", c.Name)
		}
	}
	return nil
}

// keyColumns resolves the names of one key, checks their types and makes the
// columns NOT NULL.
func keyColumns(t *millrace.Table, spec *Spec, key string, names []string) ([]millrace.ColumnID, error) {
	var ids []millrace.ColumnID
	for _, name := range names {
		i := t.Schema.Index(name)
		if i < 0 {
			return nil, field(errs.InvalidSchema, key, "%s names %s, which is not a column of the table", key, clip(name))
		}
		col := &t.Schema.Columns[i]
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

// checkAutoIncrement checks the column whose values the server gives, if there is one.
func checkAutoIncrement(t *millrace.Table) error {
	first := ""
	for _, c := range t.Schema.Columns {
		switch {
		case !c.AutoIncrement:
			continue
		case !t.Keyed():
			return field(errs.InvalidSchema, c.Name, "column %q: auto_increment is for tables with a primary key", c.Name)
		case c.Type.Kind != millrace.Int && c.Type.Kind != millrace.BigInt:
			return field(errs.InvalidSchema, c.Name, "column %q is %s; an auto_increment column is INT or BIGINT", c.Name, c.Type)
		case slices.Contains(t.PrimaryKey, c.ID):
			return field(errs.InvalidSchema, c.Name, "column %q is in the primary key; an auto_increment column is not, since its value is given to a row that is found by its key", c.Name)
		case first != "":
			return field(errs.InvalidSchema, c.Name, "columns %q and %q are both auto_increment; a table has one such column", first, c.Name)
		}
		first = c.Name
	}
	return nil
}
