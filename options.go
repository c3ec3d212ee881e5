package millrace

import (
	"slices"
	"time"
)

// TableOptions are the properties of a table that the server acts on, resolved:
// columns by id, so that a renamed column keeps what was said of it. The zero value
// is what a table without properties has.
type TableOptions struct {
	// LogTTL is how long records are kept: 0 stands for DefaultLogTTL, a negative
	// value for ever.
	LogTTL time.Duration `json:"log_ttl,omitempty"`
	// LocalTTL is how long files of the log that the object store has are also kept on
	// the worker's disk: 0 stands for as long as the log has them, a negative value for
	// not at all.
	LocalTTL time.Duration `json:"local_ttl,omitempty"`

	// MergeEngine decides what a write does to the row with its key. Keyed tables only,
	// like all that follows up to SkipUnchanged.
	MergeEngine MergeEngine `json:"merge_engine,omitempty"`
	// VersionColumn is the column that the engine Versioned compares.
	VersionColumn ColumnID `json:"version_column,omitempty"`
	// Aggregates are by column; the engine Aggregation uses LastValueIgnoreNulls for
	// columns that are not named.
	Aggregates    map[ColumnID]Aggregate `json:"aggregates,omitempty"`
	Deletes       DeleteBehavior         `json:"deletes,omitempty"`
	Image         ChangelogImage         `json:"image,omitempty"`
	SkipUnchanged bool                   `json:"skip_unchanged,omitempty"`

	// FixedPartitions refuses writes to partitions that do not exist; without it they
	// are made on demand. Partitioned tables only, like AutoPartition.
	FixedPartitions bool           `json:"fixed_partitions,omitempty"`
	AutoPartition   *AutoPartition `json:"auto_partition,omitempty"`

	// Lake is how the table is kept in the lake; nil when it never was. It stays when
	// tiering is turned off: what is in the lake can still be read.
	Lake *LakeOptions `json:"lake,omitempty"`
}

// LakeOptions say how a table is kept in the lake.
type LakeOptions struct {
	// Enabled says that rows are tiered, and that none leave the log before they are.
	Enabled bool       `json:"enabled"`
	Format  LakeFormat `json:"format"`
	// Freshness is how far the lake may lag behind the log.
	Freshness time.Duration `json:"freshness"`
	// Compact merges small files and deletes.
	Compact bool `json:"compact"`
	// Expire removes old snapshots.
	Expire bool `json:"expire"`
	// TargetFileBytes is the size that data files are written and merged up to.
	TargetFileBytes int64 `json:"target_file_bytes"`
	// SystemColumns adds __bucket, __offset and __timestamp to lake tables.
	SystemColumns bool `json:"system_columns,omitempty"`
	// Deletes is what rows of keyed tables that are no more leave behind.
	Deletes LakeDeletes `json:"deletes"`
	// Gaps is how often records could leave the log without being in the lake: tiering was
	// turned off, or the table was there before. It only rises. Where the lake has seen all
	// of them, what is missing between lake and log was lost.
	Gaps int64 `json:"gaps,omitempty"`
}

// LakeFormat names an open table format.
type LakeFormat string

// Iceberg is Apache Iceberg, format version 2.
const Iceberg LakeFormat = "iceberg"

// maxLakePrecision is that of times in Iceberg's format 2: microseconds.
const maxLakePrecision = 6

// Holds says whether tables of the format can have values of a type.
func (f LakeFormat) Holds(t DataType) bool {
	switch t.Kind {
	case Time, Timestamp, TimestampLTZ:
		return t.Precision <= maxLakePrecision
	default:
		return !slices.ContainsFunc(t.Children, func(c Column) bool { return !f.Holds(c.Type) })
	}
}

// LakeDeletes names what rows that are no more leave behind in the lake.
type LakeDeletes string

// The ways to delete: a file that lists their positions, or files without them.
const (
	PositionDeletes LakeDeletes = "position"
	RewriteFiles    LakeDeletes = "rewrite"
)

// What a lake table has unless its properties say otherwise.
const (
	DefaultLakeFreshness   = 3 * time.Minute
	DefaultTargetFileBytes = 128 << 20
)

// DefaultLogTTL is how long a table without table.log.ttl keeps its records.
const DefaultLogTTL = 7 * 24 * time.Hour

// Retention is how long records are kept; forever says that they are never removed.
func (o *TableOptions) Retention() (ttl time.Duration, forever bool) {
	switch {
	case o.LogTTL < 0:
		return 0, true
	case o.LogTTL == 0:
		return DefaultLogTTL, false
	}
	return o.LogTTL, false
}

// KeepLocal is how long files of the log that the object store has are also kept on the
// worker's disk; forever says for as long as the log has them.
func (o *TableOptions) KeepLocal() (ttl time.Duration, forever bool) {
	return max(o.LocalTTL, 0), o.LocalTTL == 0
}

// MergeEngine names what a write does to the row with its key.
type MergeEngine string

// The merge engines; the empty one keeps the last row.
const (
	LastRow     MergeEngine = ""
	FirstRow    MergeEngine = "first_row"
	Versioned   MergeEngine = "versioned"
	Aggregation MergeEngine = "aggregation"
)

// AggregateFunction names how a column's old and new value become one.
type AggregateFunction string

// The aggregate functions.
const (
	AggSum                   AggregateFunction = "sum"
	AggProduct               AggregateFunction = "product"
	AggMin                   AggregateFunction = "min"
	AggMax                   AggregateFunction = "max"
	AggLastValue             AggregateFunction = "last_value"
	AggLastValueIgnoreNulls  AggregateFunction = "last_value_ignore_nulls"
	AggFirstValue            AggregateFunction = "first_value"
	AggFirstValueIgnoreNulls AggregateFunction = "first_value_ignore_nulls"
	AggListagg               AggregateFunction = "listagg"
	AggBoolAnd               AggregateFunction = "bool_and"
	AggBoolOr                AggregateFunction = "bool_or"
)

// Aggregate is how one column is aggregated.
type Aggregate struct {
	Function AggregateFunction `json:"function"`
	// Delimiter stands between the values of listagg; DefaultDelimiter unless set.
	Delimiter string `json:"delimiter,omitempty"`
}

// DefaultDelimiter stands between the values of a listagg without a delimiter.
const DefaultDelimiter = ","

// Takes says whether the function is one of ours and aggregates values of a type.
func (f AggregateFunction) Takes(t DataType) bool {
	switch f {
	case AggLastValue, AggLastValueIgnoreNulls, AggFirstValue, AggFirstValueIgnoreNulls:
		return true
	case AggBoolAnd, AggBoolOr:
		return t.Kind == Boolean
	case AggListagg:
		return t.Kind == Char || t.Kind == String
	case AggSum, AggProduct:
		return t.numeric()
	case AggMin, AggMax:
		switch t.Kind {
		case Char, String, Date, Time, Timestamp, TimestampLTZ:
			return true
		default:
			return t.numeric()
		}
	}
	return false
}

func (t DataType) numeric() bool {
	switch t.Kind {
	case TinyInt, SmallInt, Int, BigInt, Float, Double, Decimal:
		return true
	default:
		return false
	}
}

// DeleteBehavior says what becomes of deletes.
type DeleteBehavior string

// The delete behaviours; the empty one takes them.
const (
	AllowDeletes   DeleteBehavior = ""
	IgnoreDeletes  DeleteBehavior = "IGNORE"
	DisableDeletes DeleteBehavior = "DISABLE"
)

// ChangelogImage says what of an update is logged.
type ChangelogImage string

// The changelog images: the row before and after an update, or after it only.
const (
	FullImage ChangelogImage = ""
	WALImage  ChangelogImage = "WAL"
)

// AutoPartition makes partitions ahead of time and ends old ones.
type AutoPartition struct {
	Column ColumnID      `json:"column"` // holds the time; STRING, INT, BIGINT, DATE or a timestamp
	Unit   PartitionUnit `json:"unit"`
	Zone   string        `json:"zone,omitempty"` // an IANA name; UTC unless set
	// Precreate is how many partitions there are from the current one on, it included.
	Precreate int `json:"precreate"`
	// Retain is how many partitions before the current one are kept.
	Retain int `json:"retain"`
}

// PartitionUnit is the time that a partition covers.
type PartitionUnit string

// The units.
const (
	Hourly    PartitionUnit = "HOUR"
	Daily     PartitionUnit = "DAY"
	Monthly   PartitionUnit = "MONTH"
	Quarterly PartitionUnit = "QUARTER"
	Yearly    PartitionUnit = "YEAR"
)
