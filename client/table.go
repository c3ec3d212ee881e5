package client

import (
	"strings"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Table names a table of a server. It holds nothing that could grow old.
type Table struct {
	c        *Client
	database string
	base     string // the table
	view     string // the table with its suffix, for reads
}

// suffixes are those that reads take.
var suffixes = []string{"$changelog", "$binlog", "$lake"}

// Table names a table as "database.table"; reads also take "$changelog",
// "$binlog" and "$lake" at its end. The server is not asked.
func (c *Client) Table(name string) (*Table, error) {
	base := name
	for _, s := range suffixes {
		base = strings.TrimSuffix(base, s)
	}
	p, err := millrace.ParseTablePath(base)
	if err != nil {
		return nil, errs.New(errs.InvalidName, "%v", err)
	}
	return &Table{c: c, database: p.Database, base: p.Table, view: p.Table + name[len(base):]}, nil
}

// String is "database.table" with the suffix, if any.
func (t *Table) String() string { return t.database + "." + t.view }

// Database is the name of its database.
func (t *Table) Database() string { return t.database }

// Name is the name of the table, without a suffix.
func (t *Table) Name() string { return t.base }
