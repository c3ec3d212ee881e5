package shard

import (
	"fmt"
	"slices"
	"sync"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

// tableState is what a shard knows of a table: its newest descriptor, and the
// versions of its schema that rows here were written with.
type tableState struct {
	mu      sync.RWMutex
	table   *millrace.Table // the newest descriptor
	schemas map[millrace.SchemaID]*millrace.Schema

	// The loop's own: the descriptors that groups not applied yet teach, in order,
	// and the version that new rows are of, these included.
	learning []*millrace.Table
	version  *tableVersion
}

func newTableState(d *millrace.Table) *tableState {
	t := &tableState{schemas: map[millrace.SchemaID]*millrace.Schema{}}
	t.learn(d)
	t.version = newTableVersion(d)
	return t
}

// schema is a version of the table's schema; nil when no row here was written with it.
func (t *tableState) schema(id millrace.SchemaID) *millrace.Schema {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.schemas[id]
}

// learn takes over what a durable entry says of the table. The descriptor with the
// highest version is what the table goes by; the schemas of others are kept for
// reading.
func (t *tableState) learn(d *millrace.Table) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.schemas[d.Schema.ID] = d.Schema
	if t.table == nil || d.Version >= t.table.Version {
		t.table = d
	}
	t.learning = slices.DeleteFunc(t.learning, func(l *millrace.Table) bool { return l == d })
}

// newest is the descriptor that the table goes by, as applied.
func (t *tableState) newest() *millrace.Table {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.table
}

// teach notes the descriptor of an op, when it says something new: a later version,
// or the schema of columnar payloads, which stay as they are (compact rows are
// rewritten), when no row here was written with it. The group then has to say so
// before its rows do.
func (t *tableState) teach(g *group, op *Op) {
	d := op.Table
	later := d.Version > t.version.table.Version
	if !later && (op.Columns == nil || t.preparedSchema(d.Schema.ID) != nil) {
		return
	}
	t.learning = append(t.learning, d)
	l := learned{of: t, table: d, entry: encodeJSON(&openEntry{Buckets: []millrace.BucketID{}, Table: d})}
	g.learned = append(g.learned, l)
	g.bytes += len(l.entry)
	if later {
		t.version = newTableVersion(d)
	}
}

// learned is a descriptor that a group makes known.
type learned struct {
	of    *tableState
	table *millrace.Table
	entry []byte
}

// preparedSchema is a version of the schema as of what was prepared before.
func (t *tableState) preparedSchema(id millrace.SchemaID) *millrace.Schema {
	for _, d := range t.learning {
		if d.Schema.ID == id {
			return d.Schema
		}
	}
	return t.schema(id)
}

// unlearn goes back to what is applied.
func (t *tableState) unlearn() {
	t.learning = nil
	t.version = newTableVersion(t.newest())
}

// tableVersion is a table as of one version of its descriptor, with what the loop
// needs of it again and again.
type tableVersion struct {
	table *millrace.Table
	codec *row.Codec
	// Of keyed tables.
	pk     []int
	engine *engine
	// Rewriting of rows of other schemas, made when the first one is met.
	converters map[millrace.SchemaID]*row.Converter
}

func newTableVersion(d *millrace.Table) *tableVersion {
	v := &tableVersion{table: d, codec: row.NewCodec(d.Schema)}
	if d.Keyed() {
		v.pk = d.KeyIndexes(d.PrimaryKey)
		v.engine = newEngine(d, v.codec)
	}
	return v
}

// rewrite makes a stored row one of the version's schema. The row is not changed.
func (b *bucketState) rewrite(r []byte) ([]byte, error) {
	id := row.SchemaIDOf(r)
	if id == b.table.Schema.ID {
		return r, nil
	}
	s := b.of.preparedSchema(id)
	if s == nil {
		return nil, errs.New(errs.CorruptData, "shard: a row of bucket %s is of schema %d, which was never written", b.id, id)
	}
	c, err := b.converter(s)
	if err != nil {
		return nil, err
	}
	return c.Append(nil, r)
}

// converter rewrites rows of another schema of the table.
func (v *tableVersion) converter(from *millrace.Schema) (*row.Converter, error) {
	if c := v.converters[from.ID]; c != nil {
		return c, nil
	}
	c, err := row.NewConverter(from, v.table.Schema)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", v.table.Path, err)
	}
	if v.converters == nil {
		v.converters = map[millrace.SchemaID]*row.Converter{}
	}
	v.converters[from.ID] = c
	return c, nil
}

// adopt makes an op one of the version. Its compact rows become rows of the
// version's schema: a column that this has in addition is NULL in a whole row and
// not carried by a partial one; what a dropped column held is left out. Columnar
// payloads stay as they are, since readers align what they read.
func (v *tableVersion) adopt(op *Op) (*Op, error) {
	if op.Table == v.table {
		return op, nil
	}
	out := *op
	out.Table = v.table
	from := op.Table.Schema
	if from.ID == v.table.Schema.ID {
		return &out, nil
	}
	if op.Set != nil {
		out.Set = make([]bool, len(v.table.Schema.Columns))
		for i, c := range v.table.Schema.Columns {
			if at := from.IndexID(c.ID); at >= 0 {
				out.Set[i] = op.Set[at]
			}
		}
	}
	if op.Rows == nil {
		return &out, nil
	}
	c, err := v.converter(from)
	if err != nil {
		return nil, err
	}
	out.Rows = make([][]byte, len(op.Rows))
	for i, r := range op.Rows {
		if r == nil { // of a delete
			continue
		}
		if out.Rows[i], err = c.Append(nil, r); err != nil {
			return nil, err
		}
	}
	return &out, nil
}
