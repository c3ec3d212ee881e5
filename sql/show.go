package sql

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/array"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
)

// listPage is how much of a list is asked for at once.
const listPage = 1000

func columnOf(name string, k millrace.Kind, nullable bool) millrace.Column {
	return millrace.Column{Name: name, Type: millrace.DataType{Kind: k}, Nullable: nullable}
}

// listed is a result with a row for each entry of all pages of a list.
func listed[T any](column string, page func(token string) ([]T, string, error), text func(T) string) (*Result, error) {
	var texts []string
	for token := ""; ; {
		entries, next, err := page(token)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			texts = append(texts, text(e))
		}
		if next == "" {
			return textRows(column, texts), nil
		}
		token = next
	}
}

func textRows(column string, texts []string) *Result {
	return built([]millrace.Column{columnOf(column, millrace.String, false)}, func(b []array.Builder) {
		b[0].(*array.StringBuilder).AppendStringValues(texts, nil)
	})
}

func (c *call) showDatabases(ctx context.Context) (*Result, error) {
	return listed("database", func(token string) ([]catalog.Database, string, error) {
		return c.o.Catalog.Databases(ctx, listPage, token)
	}, func(d catalog.Database) string { return d.Name })
}

func (c *call) showTables(ctx context.Context, st *showTables) (*Result, error) {
	db, err := c.database(st.database, len(c.src))
	if err != nil {
		return nil, err
	}
	return listed("table", func(token string) ([]*millrace.Table, string, error) {
		return c.o.Catalog.Tables(ctx, db, listPage, token)
	}, func(t *millrace.Table) string { return t.Path.Table })
}

func (c *call) showPartitions(ctx context.Context, st *showPartitions) (*Result, error) {
	t, err := c.table(ctx, st.table)
	if err != nil {
		return nil, err
	}
	if err := partitioned(t); err != nil {
		return nil, err
	}
	ps, err := c.o.Catalog.Partitions(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	return built([]millrace.Column{columnOf("partition", millrace.String, false), columnOf("state", millrace.String, false)}, func(b []array.Builder) {
		for _, p := range ps {
			b[0].(*array.StringBuilder).Append(p.Name)
			b[1].(*array.StringBuilder).Append(string(p.Shown()))
		}
	}), nil
}

func (c *call) showCreateTable(ctx context.Context, st *showCreateTable) (*Result, error) {
	t, err := c.table(ctx, st.table)
	if err != nil {
		return nil, err
	}
	return textRows("create_table", []string{createStatement(t)}), nil
}

// createStatement is the statement that creates an equal table.
func createStatement(t *millrace.Table) string {
	var b strings.Builder
	b.WriteString("CREATE TABLE " + quoteName(t.Path.Database) + "." + quoteName(t.Path.Table) + " (")
	for i, col := range t.Schema.Columns {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n  " + quoteName(col.Name) + " " + col.Type.String())
		if !col.Nullable {
			b.WriteString(" NOT NULL")
		}
		if col.AutoIncrement {
			b.WriteString(" AUTO_INCREMENT")
		}
		if col.Comment != "" {
			b.WriteString(" COMMENT " + quoteText(col.Comment))
		}
	}
	if t.Keyed() {
		b.WriteString(",\n  PRIMARY KEY (" + quoteNames(t.Names(t.PrimaryKey)) + ")")
	}
	b.WriteString("\n)")
	if t.Comment != "" {
		b.WriteString("\nCOMMENT " + quoteText(t.Comment))
	}
	if t.Partitioned() {
		b.WriteString("\nPARTITIONED BY (" + quoteNames(t.Names(t.PartitionBy)) + ")")
	}
	props := maps.Clone(t.Properties)
	if props == nil {
		props = map[string]string{}
	}
	props["bucket.num"] = strconv.Itoa(t.Buckets)
	if len(t.BucketKey) > 0 {
		props["bucket.key"] = strings.Join(t.Names(t.BucketKey), ",")
	}
	b.WriteString("\nWITH (")
	for i, key := range slices.Sorted(maps.Keys(props)) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n  " + quoteText(key) + " = " + quoteText(props[key]))
	}
	b.WriteString("\n)")
	return b.String()
}

func quoteName(s string) string { return "`" + s + "`" }

func quoteNames(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quoteName(n)
	}
	return strings.Join(quoted, ", ")
}

func quoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// describe lists the columns of a table, or of a view of it.
func (c *call) describe(ctx context.Context, st *describe) (*Result, error) {
	path, err := c.path(st.table)
	if err != nil {
		return nil, err
	}
	named, err := c.o.Router.Named(ctx, path)
	if err != nil {
		return nil, err
	}
	t := named.Table
	place := func(ids []millrace.ColumnID, id millrace.ColumnID, b array.Builder) {
		if i := slices.Index(ids, id); i >= 0 {
			b.(*array.Int32Builder).Append(int32(i + 1))
		} else {
			b.AppendNull()
		}
	}
	return built([]millrace.Column{
		columnOf("name", millrace.String, false), columnOf("type", millrace.String, false), columnOf("nullable", millrace.Boolean, false),
		columnOf("primary_key", millrace.Int, true), columnOf("partition_by", millrace.Int, true),
		columnOf("auto_increment", millrace.Boolean, false), columnOf("comment", millrace.String, true),
	}, func(b []array.Builder) {
		for _, col := range named.Shape {
			b[0].(*array.StringBuilder).Append(col.Name)
			b[1].(*array.StringBuilder).Append(col.Type.String())
			b[2].(*array.BooleanBuilder).Append(col.Nullable)
			place(t.PrimaryKey, col.ID, b[3])
			place(t.PartitionBy, col.ID, b[4])
			b[5].(*array.BooleanBuilder).Append(col.AutoIncrement)
			if col.Comment == "" {
				b[6].AppendNull()
			} else {
				b[6].(*array.StringBuilder).Append(col.Comment)
			}
		}
	}), nil
}
