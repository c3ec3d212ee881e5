package sql

import millrace "github.com/millrace/millrace"

// Kind is what a statement is, whatever it names.
type Kind uint8

// The kinds of statements.
const (
	Select Kind = iota
	Insert
	Delete
	CreateDatabaseKind
	DropDatabaseKind
	CreateTableKind
	DropTableKind
	AlterTableKind
	AddPartition
	DropPartition
	ShowDatabases
	ShowTables
	ShowPartitions
	ShowCreateTable
	Describe
	Use
	kindCount
)

// kinds are the words of each kind, and what its caller needs on what the statement names.
// Lists are of each thing that is listed.
var kinds = [kindCount]struct {
	words string
	rule  millrace.Rule
}{
	Select:             {"SELECT", millrace.RuleOf(millrace.VerbRead)},
	Insert:             {"INSERT", millrace.RuleOf(millrace.VerbWrite)},
	Delete:             {"DELETE", millrace.RuleOf(millrace.VerbWrite)},
	CreateDatabaseKind: {"CREATE DATABASE", millrace.RuleOf(millrace.VerbCreate)},
	DropDatabaseKind:   {"DROP DATABASE", millrace.RuleOf(millrace.VerbDrop)},
	CreateTableKind:    {"CREATE TABLE", millrace.RuleOf(millrace.VerbCreate)},
	DropTableKind:      {"DROP TABLE", millrace.RuleOf(millrace.VerbDrop)},
	AlterTableKind:     {"ALTER TABLE", millrace.RuleOf(millrace.VerbAlter)},
	AddPartition:       {"ALTER TABLE ADD PARTITION", millrace.RuleOf(millrace.VerbCreate)},
	DropPartition:      {"ALTER TABLE DROP PARTITION", millrace.RuleOf(millrace.VerbAlter)},
	ShowDatabases:      {"SHOW DATABASES", millrace.RuleOf(millrace.VerbDescribe)},
	ShowTables:         {"SHOW TABLES", millrace.RuleOf(millrace.VerbDescribe)},
	ShowPartitions:     {"SHOW PARTITIONS", millrace.RuleOf(millrace.VerbDescribe)},
	ShowCreateTable:    {"SHOW CREATE TABLE", millrace.RuleOf(millrace.VerbDescribe)},
	Describe:           {"DESCRIBE", millrace.RuleOf(millrace.VerbDescribe)},
	Use:                {"USE", millrace.RuleKnown}, // of scripts; refused in a request
}

// Kinds are all kinds.
func Kinds() []Kind {
	out := make([]Kind, kindCount)
	for i := range out {
		out[i] = Kind(i)
	}
	return out
}

// String is what a statement of the kind begins with.
func (k Kind) String() string { return kinds[k].words }

// Rule is what the caller of a statement of the kind needs.
func (k Kind) Rule() millrace.Rule { return kinds[k].rule }

// KindOf is the kind of a statement.
func KindOf(text string) (Kind, error) {
	st, _, err := parse(text)
	if err != nil {
		return 0, err
	}
	return st.kind(), nil
}

func (*query) kind() Kind           { return Select }
func (*insert) kind() Kind          { return Insert }
func (*remove) kind() Kind          { return Delete }
func (*createDatabase) kind() Kind  { return CreateDatabaseKind }
func (*dropDatabase) kind() Kind    { return DropDatabaseKind }
func (*createTable) kind() Kind     { return CreateTableKind }
func (*dropTable) kind() Kind       { return DropTableKind }
func (*alterTable) kind() Kind      { return AlterTableKind }
func (*showDatabases) kind() Kind   { return ShowDatabases }
func (*showTables) kind() Kind      { return ShowTables }
func (*showPartitions) kind() Kind  { return ShowPartitions }
func (*showCreateTable) kind() Kind { return ShowCreateTable }
func (*describe) kind() Kind        { return Describe }
func (*useDatabase) kind() Kind     { return Use }

func (st *alterPartition) kind() Kind {
	if st.drop {
		return DropPartition
	}
	return AddPartition
}
