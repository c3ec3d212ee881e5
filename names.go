package millrace

import (
	"fmt"
	"strings"
)

// MaxNameBytes is the longest database, table or column name.
const MaxNameBytes = 200

// System columns: they may be asked for in reads and may not be declared.
const (
	ColChangeType      = "_change_type"
	ColLogOffset       = "_log_offset"
	ColCommitTimestamp = "_commit_timestamp"
	ColPartition       = "_partition"
	ColBucket          = "_bucket"
	ColFound           = "_found"
	ColKeyIndex        = "_key_index"
)

// Columns of the binlog view that hold rows; a table may have columns of these names,
// which are then fields in them.
const (
	ColBefore = "before"
	ColAfter  = "after"
)

// TablePath names a table.
type TablePath struct {
	Database string
	Table    string
}

// String is "database.table".
func (p TablePath) String() string { return p.Database + "." + p.Table }

// ParseTablePath reads "database.table" and checks both names.
func ParseTablePath(s string) (TablePath, error) {
	db, t, ok := strings.Cut(s, ".")
	if !ok {
		return TablePath{}, fmt.Errorf("%s is not of the form database.table", clip(s))
	}
	if err := ValidateName("database", db); err != nil {
		return TablePath{}, err
	}
	if err := ValidateName("table", t); err != nil {
		return TablePath{}, err
	}
	return TablePath{Database: db, Table: t}, nil
}

// ValidateName checks a database, table or column name (noun says which):
// ^[A-Za-z_][A-Za-z0-9_]{0,199}$, no leading "__", no system column's name.
func ValidateName(noun, name string) error {
	if name == "" {
		return fmt.Errorf("the %s name is empty", noun)
	}
	if len(name) > MaxNameBytes {
		return fmt.Errorf("the %s name %s has %d characters; at most %d are allowed", noun, clip(name), len(name), MaxNameBytes)
	}
	for i := range len(name) {
		c := name[i]
		letter := c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return fmt.Errorf("the %s name %s may hold letters, digits and _ only, and begins with a letter or _", noun, clip(name))
		}
	}
	if strings.HasPrefix(name, "__") {
		return fmt.Errorf("the %s name %s is reserved: names may not begin with __", noun, clip(name))
	}
	switch name {
	case ColChangeType, ColLogOffset, ColCommitTimestamp, ColPartition, ColBucket, ColFound, ColKeyIndex:
		return fmt.Errorf("the %s name %s is reserved", noun, clip(name))
	}
	return nil
}

// clip quotes a name for a message, shortened when a hostile one is long.
func clip(s string) string {
	if len(s) > 64 {
		return fmt.Sprintf("%q…", s[:64])
	}
	return fmt.Sprintf("%q", s)
}
