package catalog

import (
	"slices"
	"strings"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// place is where a column or nested field stands.
type place struct {
	siblings *[]millrace.Column
	at       int
	path     string
	// parent is the kind of the type that it is a part of; 0 for a column.
	parent millrace.Kind
	// inMapKey says that it is, or is within, the key of a MAP.
	inMapKey bool
}

func (p place) column() *millrace.Column { return &(*p.siblings)[p.at] }

// find is where the column or nested field with this path is.
func (a *alteration) find(path string) (place, error) {
	p := place{siblings: &a.t.Schema.Columns, path: path}
	for i, name := range strings.Split(path, ".") {
		if i > 0 {
			up := p.column()
			p.siblings, p.parent = &up.Type.Children, up.Type.Kind
		}
		p.at = slices.IndexFunc(*p.siblings, func(c millrace.Column) bool { return c.Name == name })
		if p.at < 0 {
			return p, field(errs.UnknownColumn, clipped(path), "table %q has no column %s", a.t.Path, clip(path))
		}
		p.inMapKey = p.inMapKey || p.parent == millrace.Map && name == millrace.KeyName
	}
	return p, nil
}

// checkField refuses to change the shape of what is no column and no field of a
// ROW, and of keys of maps, whose equality would change.
func (p place) checkField(what string) error {
	switch {
	case p.inMapKey:
		return field(errs.InvalidSchema, p.path, "%q is in the key of a MAP and cannot be %s", p.path, what)
	case p.parent == millrace.Array || p.parent == millrace.Map:
		return field(errs.InvalidSchema, p.path, "%q is a part of every %s and cannot be %s", p.path, p.parent, what)
	}
	return nil
}

func (a *alteration) addColumn(spec ColumnSpec, first bool, after string) error {
	path := spec.Name
	siblings, prefix := &a.t.Schema.Columns, ""
	if dot := strings.LastIndexByte(path, '.'); dot >= 0 {
		up, err := a.find(path[:dot])
		if err != nil {
			return err
		}
		c := up.column()
		if c.Type.Kind != millrace.Row || up.inMapKey {
			return field(errs.InvalidSchema, clipped(path), "%q is %s; a field can be added to a ROW that is not in the key of a MAP", up.path, c.Type.Kind)
		}
		siblings, prefix, spec.Name = &c.Type.Children, path[:dot+1], path[dot+1:]
	}
	added, err := makeColumn(spec)
	switch {
	case err != nil:
		return err
	case !added.Nullable:
		return field(errs.InvalidSchema, path, "column %q is added as NOT NULL, and rows that are there have no value in it; it is nullable", path)
	case added.AutoIncrement:
		return field(errs.InvalidSchema, path, "column %q is auto_increment, which is fixed when a table is created", path)
	}
	made := []millrace.Column{added}
	a.t.LastColumnID = numberFields(made, a.t.LastColumnID)

	at := len(*siblings)
	if first {
		at = 0
	}
	if after != "" {
		name := strings.TrimPrefix(after, prefix)
		at = 1 + slices.IndexFunc(*siblings, func(c millrace.Column) bool { return c.Name == name })
		if at == 0 {
			return field(errs.UnknownColumn, clipped(after), "there is no column %s beside %s to come after", clip(after), clip(path))
		}
	}
	*siblings = slices.Insert(*siblings, at, made[0])
	return checkDistinct("column", *siblings)
}

func (a *alteration) renameColumn(path, to string) error {
	p, err := a.find(path)
	if err == nil {
		err = p.checkField("renamed")
	}
	if err == nil {
		err = checkName("column", to)
	}
	if err != nil {
		return err
	}
	c := p.column()
	if slices.Contains(a.t.PartitionBy, c.ID) && to != c.Name {
		return field(errs.InvalidSchema, path, "column %q is in partition_by; its name stands in the names of partitions and cannot change", path)
	}
	if p.parent == 0 {
		a.renameInProperties(c.Name, to)
	}
	c.Name = to
	return checkDistinct("column", *p.siblings)
}

func (a *alteration) dropColumn(path string) error {
	p, err := a.find(path)
	if err == nil {
		err = p.checkField("dropped")
	}
	if err != nil {
		return err
	}
	if why := a.neededFor(p.column()); why != "" {
		return field(errs.InvalidSchema, path, "column %q %s and cannot be dropped", path, why)
	}
	if len(*p.siblings) == 1 {
		return field(errs.InvalidSchema, path, "column %q is the last one there and cannot be dropped", path)
	}
	*p.siblings = slices.Delete(*p.siblings, p.at, p.at+1)
	return nil
}

// neededFor says why the table cannot be without the column; "" when it can.
func (a *alteration) neededFor(c *millrace.Column) string {
	o := &a.t.Options
	_, aggregated := o.Aggregates[c.ID]
	switch {
	case slices.Contains(a.t.PrimaryKey, c.ID):
		return "is in the primary key"
	case slices.Contains(a.t.PartitionBy, c.ID):
		return "is in partition_by"
	case slices.Contains(a.t.BucketKey, c.ID):
		return "is in the bucket key"
	case o.VersionColumn == c.ID:
		return "holds the version that the merge engine compares"
	case aggregated:
		return "is aggregated, as the property " + fieldsPrefix + c.Name + aggSuffix + " says,"
	case c.AutoIncrement:
		return "is auto_increment, which is fixed when a table is created,"
	}
	return ""
}

func (a *alteration) alterType(path, text string) error {
	p, err := a.find(path)
	if err != nil {
		return err
	}
	typ, err := parseType(path, text)
	if err != nil {
		return err
	}
	c := p.column()
	switch {
	case typ.Equal(c.Type):
		return nil
	case typ.Nested() && typ.Kind == c.Type.Kind:
		return field(errs.InvalidSchema, path, "column %q is %s; change its fields by their paths, such as %s.%s", path, c.Type.Kind, path, c.Type.Children[0].Name)
	case !widens(c.Type, typ):
		return field(errs.InvalidSchema, path, "column %q is %s and cannot become %s without losing data; INT becomes BIGINT, FLOAT becomes DOUBLE, and DECIMAL gets more precision at the same scale", path, c.Type, typ)
	case p.inMapKey:
		return field(errs.InvalidSchema, path, "%q is in the key of a MAP and cannot be widened", path)
	}
	for _, key := range []struct {
		name string
		ids  []millrace.ColumnID
	}{{"the primary key", a.t.PrimaryKey}, {"partition_by", a.t.PartitionBy}, {"the bucket key", a.t.BucketKey}} {
		if slices.Contains(key.ids, c.ID) {
			return field(errs.InvalidSchema, path, "column %q is in %s and cannot be widened", path, key.name)
		}
	}
	c.Type = typ
	return nil
}

// widens says whether every value of one type is one of the other, and stored values
// are read so (row and segment files align them).
func widens(from, to millrace.DataType) bool {
	switch {
	case from.Kind == millrace.Int && to.Kind == millrace.BigInt, from.Kind == millrace.Float && to.Kind == millrace.Double:
		return true
	case from.Kind == millrace.Decimal && to.Kind == millrace.Decimal:
		return from.Scale == to.Scale && from.Precision < to.Precision
	}
	return false
}
