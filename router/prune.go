package router

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/row/jsonrow"
)

// scope is what a request leaves of a table: some partitions, and of each some buckets.
// It stays with a plan that follows the log, for partitions that are made later.
type scope struct {
	partitions []string // names, sorted; nil: all
	buckets    []uint16
	// total and skipped count the partitions that there were, and those left out.
	total, skipped int
	some           bool // the request names buckets, and not all
}

// chooseScope is where the request can have rows.
func (r *Router) chooseScope(ctx context.Context, p *Plan, req *ReadRequest) error {
	t := p.Table
	if len(req.Partitions) > 0 && !t.Partitioned() {
		return errs.New(errs.PartitionNotFound, "table %s is not partitioned, so it has no partition to name", t.Path)
	}
	for _, raw := range req.Partitions {
		name, err := r.partitionNamed(ctx, t, raw)
		if err != nil {
			return err
		}
		p.scope.partitions = append(p.scope.partitions, name)
	}
	slices.Sort(p.scope.partitions)
	p.scope.partitions = slices.Compact(p.scope.partitions)
	pinned := p.pinnedBuckets()
	for b := range t.Buckets {
		n := uint16(b)
		if (len(req.Buckets) == 0 || slices.Contains(req.Buckets, b)) && (pinned == nil || slices.Contains(pinned, n)) {
			p.scope.buckets = append(p.scope.buckets, n)
		}
	}
	p.scope.some = len(req.Buckets) > 0 && len(slices.Compact(slices.Sorted(slices.Values(req.Buckets)))) < t.Buckets
	for _, b := range req.Buckets {
		if b < 0 || b >= t.Buckets {
			return errs.New(errs.InvalidValue, "table %s has buckets 0 to %d, not %d", t.Path, t.Buckets-1, b)
		}
	}
	return nil
}

// partitionNamed is the name of the partition that a request means: one of its names,
// or the object of its values.
func (r *Router) partitionNamed(ctx context.Context, t *millrace.Table, raw json.RawMessage) (string, error) {
	var name string
	if err := json.Unmarshal(raw, &name); err != nil {
		values, err := jsonrow.PartitionOfObject(t, raw)
		if err != nil {
			return "", err
		}
		name = millrace.PartitionName(t.Names(t.PartitionBy), values)
	}
	p, err := r.o.Catalog.Partition(ctx, t.ID, name)
	if err != nil {
		return "", err
	}
	return p.Name, nil
}

// partitions are those that the plan's scope and filter leave, by name; with past, also
// those that have ended.
func (r *Router) partitions(ctx context.Context, p *Plan, past bool) ([]*millrace.Partition, error) {
	all, err := r.o.Catalog.Partitions(ctx, p.Table.ID)
	if err != nil {
		return nil, err
	}
	some, err := r.pinnedPartitions(ctx, p, all)
	if err != nil {
		return nil, err
	}
	out, err := p.holding(some, past)
	p.scope.total, p.scope.skipped = len(all), len(all)-len(out)
	return out, err
}

// pinnedPartitions are the partitions that the filter pins by value, found by name: a
// read of one of ten thousand does not look at the others. They are all when it pins
// none, or so many that looking at all is no slower.
func (r *Router) pinnedPartitions(ctx context.Context, p *Plan, all []*millrace.Partition) ([]*millrace.Partition, error) {
	if p.filter == nil {
		return all, nil
	}
	cols := p.Table.Columns(p.Table.PartitionBy)
	rec := pinnedKeys(p.filter, cols)
	if rec == nil {
		return all, nil
	}
	defer rec.Release()
	if int(rec.NumRows()) >= len(all) {
		return all, nil
	}
	names := p.Table.Names(p.Table.PartitionBy)
	var out []*millrace.Partition
	for i := range int(rec.NumRows()) {
		values := make([]string, len(cols))
		for c, col := range cols {
			values[c] = string(jsonrow.AppendPartitionText(nil, col.Type, rec.Column(c), i))
		}
		q, err := r.o.Catalog.Partition(ctx, p.Table.ID, millrace.PartitionName(names, values))
		switch {
		case err == nil:
			out = append(out, q)
		case !errs.Is(err, errs.PartitionNotFound) && !errs.Is(err, errs.ValueOutOfRange): // no name is that long
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b *millrace.Partition) int { return strings.Compare(a.Name, b.Name) })
	return slices.Compact(out), nil
}

// holding are those of some partitions that can hold rows of the plan; with past, also
// those that have ended.
func (p *Plan) holding(all []*millrace.Partition, past bool) ([]*millrace.Partition, error) {
	out := make([]*millrace.Partition, 0, len(all))
	for _, q := range all {
		_, named := slices.BinarySearch(p.scope.partitions, q.Name)
		if (q.State != millrace.PartitionExpired || past && q.LakeOnly()) && (named || p.scope.partitions == nil) {
			out = append(out, q)
		}
	}
	if !p.filtersPartitions() {
		return out, nil
	}
	cols := p.Table.Columns(p.Table.PartitionBy)
	rec, err := valuesOf(p.Table, out)
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	kept := out[:0]
	for i, q := range out {
		if p.filter.MayMatch(func(name string) (filter.Stats, bool) {
			if name == millrace.ColPartition {
				return oneValue(filter.Bound{Bytes: []byte(q.Name)}), true
			}
			if c := slices.IndexFunc(cols, func(c millrace.Column) bool { return c.Name == name }); c >= 0 {
				return oneValue(boundOf(rec.Column(c), i)), true
			}
			return filter.Stats{}, false
		}) {
			kept = append(kept, q)
		}
	}
	return kept, nil
}

// Skipped is how many partitions and buckets of the table the plan leaves out.
func (p *Plan) Skipped() (partitions, buckets int) {
	all := 1
	if p.Table.Partitioned() {
		all = p.scope.total
	}
	return p.scope.skipped, max(0, all*p.Table.Buckets-len(p.Parts))
}

// filtersPartitions says whether the filter has a condition on partitions.
func (p *Plan) filtersPartitions() bool {
	if p.filter == nil {
		return false
	}
	names := p.filter.ColumnNames()
	return slices.Contains(names, millrace.ColPartition) ||
		slices.ContainsFunc(p.Table.Names(p.Table.PartitionBy), func(c string) bool { return slices.Contains(names, c) })
}

// valuesOf are the values of the partition columns, a row a partition. The caller
// releases the record.
func valuesOf(t *millrace.Table, ps []*millrace.Partition) (arrow.RecordBatch, error) {
	d := jsonrow.NewDecoder(t.Columns(t.PartitionBy), jsonrow.Options{})
	names := t.Names(t.PartitionBy)
	for i, p := range ps {
		if err := d.AddTexts(names, p.Values, int64(i)); err != nil {
			return nil, errs.New(errs.CorruptData, "partition %s of table %s has values that do not read: %v", p.Name, t.Path, err)
		}
	}
	return d.Finish().Record, nil
}

// oneValue describes rows that all have one value.
func oneValue(b filter.Bound) filter.Stats {
	return filter.Stats{Rows: 1, HasMin: true, HasMax: true, Min: b, Max: b}
}

// boundOf is value i of a column that partitions can have.
func boundOf(arr arrow.Array, i int) (b filter.Bound) {
	switch a := arr.(type) {
	case *array.String:
		b.Bytes = []byte(a.Value(i))
	case *array.Binary:
		b.Bytes = a.Value(i)
	case *array.FixedSizeBinary:
		b.Bytes = a.Value(i)
	case *array.Decimal128:
		b.Dec = a.Value(i)
	case *array.Boolean:
		if a.Value(i) {
			b.Int = 1
		}
	case *array.Int8:
		b.Int = int64(a.Value(i))
	case *array.Int16:
		b.Int = int64(a.Value(i))
	case *array.Int32:
		b.Int = int64(a.Value(i))
	case *array.Int64:
		b.Int = a.Value(i)
	case *array.Date32:
		b.Int = int64(a.Value(i))
	case *array.Time32:
		b.Int = int64(a.Value(i))
	case *array.Time64:
		b.Int = int64(a.Value(i))
	case *array.Timestamp:
		b.Int = int64(a.Value(i))
	default:
		panic("router: a partition column of type " + arr.DataType().String())
	}
	return b
}
