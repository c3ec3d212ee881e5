package sql

import (
	"context"
	"encoding/json"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
)

// Catalog is what statements need of the catalog.
type Catalog interface {
	CreateDatabase(ctx context.Context, name, comment string) (catalog.Database, error)
	Databases(ctx context.Context, limit int, token string) ([]catalog.Database, string, error)
	DropDatabase(ctx context.Context, name string, cascade bool) ([]*millrace.Table, error)
	CreateTable(ctx context.Context, db string, spec catalog.Spec, ifNotExists bool) (*millrace.Table, bool, error)
	Tables(ctx context.Context, db string, limit int, token string) ([]*millrace.Table, string, error)
	DropTable(ctx context.Context, path millrace.TablePath, ifExists, purge bool) (*millrace.Table, error)
	AlterTable(ctx context.Context, path millrace.TablePath, steps []catalog.AlterStep, ifVersion *int64) (*millrace.Table, error)
	Partitions(ctx context.Context, table millrace.TableID) ([]*millrace.Partition, error)
	EnsurePartition(ctx context.Context, table millrace.TableID, values []string) (p *millrace.Partition, created bool, err error)
}

// Router is what statements need of the router.
type Router interface {
	Named(ctx context.Context, path string) (*router.Named, error)
	Plan(ctx context.Context, path string, req *router.ReadRequest, o router.PlanOptions) (*router.Plan, error)
	Open(p *router.Plan) *router.Reader
	Count(ctx context.Context, path string, req *router.ReadRequest) (int64, error)
	Lookup(ctx context.Context, t *millrace.Table, keys arrow.RecordBatch, cols []millrace.Column) (*router.LookupResult, error)
	Write(ctx context.Context, req *router.WriteRequest) (*router.WriteResult, error)
	BeginKey(t *millrace.Table, principal, key string) (end func(), err error)
	DropTable(ctx context.Context, t *millrace.Table) error
	DropPartition(ctx context.Context, t *millrace.Table, name string) error
	// AlteredTable is told of a table that was altered.
	AlteredTable(ctx context.Context, t *millrace.Table)
}

var _ Router = (*router.Router)(nil)

// Clock tells the time.
type Clock interface {
	Now() time.Time
}

// Options are an engine's components.
type Options struct {
	Catalog Catalog
	Router  Router
	Clock   Clock
}

// Engine runs statements.
type Engine struct {
	o    Options
	most int64 // maxHeldBytes, or less in tests
}

// New makes an engine.
func New(o Options) *Engine { return &Engine{o: o, most: maxHeldBytes} }

// Request is a statement to run.
type Request struct {
	Text string
	// Params are the JSON values of the question marks, in order.
	Params []json.RawMessage
	// Database is that of tables which are named without one; it may be empty.
	Database string
	// Key is the idempotency key under which an INSERT or DELETE is known when it comes
	// again; "": none. It goes with no other statement.
	Key string
	// Principal is whose key that is; "" without authentication.
	Principal string
}

// changeTimeout bounds statements that read no rows, where the caller sets no
// deadline.
const changeTimeout = 30 * time.Second

// call is a statement being run.
type call struct {
	*Engine
	src source
	req Request
}

// Execute runs one statement. The caller closes the result.
func (e *Engine) Execute(ctx context.Context, req Request) (*Result, error) {
	st, params, err := parse(req.Text)
	if err != nil {
		return nil, err
	}
	if params != len(req.Params) {
		return nil, errs.New(errs.InvalidRequest, "every question mark takes one parameter; question marks: %d, parameters: %d", params, len(req.Params))
	}
	c := &call{Engine: e, src: source(req.Text), req: req}
	if q, ok := st.(*query); ok {
		var res *Result
		err := router.Anew(ctx, func() (err error) { // groups and sorting read to the end
			res, err = c.query(ctx, q)
			return err
		})
		return res, err
	}
	switch st.(type) {
	case *insert, *remove:
	default:
		if req.Key != "" {
			return nil, errs.New(errs.InvalidRequest, "an Idempotency-Key goes with INSERT and DELETE; other statements have IF EXISTS and IF NOT EXISTS")
		}
	}
	if _, set := ctx.Deadline(); !set {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, changeTimeout)
		defer cancel()
	}
	return c.change(ctx, st)
}

// change runs what is no query of a table.
func (c *call) change(ctx context.Context, st statement) (*Result, error) {
	switch st := st.(type) {
	case *insert:
		return c.insert(ctx, st)
	case *remove:
		return c.remove(ctx, st)
	case *createDatabase:
		return c.createDatabase(ctx, st)
	case *dropDatabase:
		return c.dropDatabase(ctx, st)
	case *createTable:
		return c.createTable(ctx, st)
	case *dropTable:
		return c.dropTable(ctx, st)
	case *alterTable:
		return c.alterTable(ctx, st)
	case *alterPartition:
		return c.alterPartition(ctx, st)
	case *showDatabases:
		return c.showDatabases(ctx)
	case *showTables:
		return c.showTables(ctx, st)
	case *showPartitions:
		return c.showPartitions(ctx, st)
	case *showCreateTable:
		return c.showCreateTable(ctx, st)
	case *describe:
		return c.describe(ctx, st)
	case *useDatabase:
		return nil, errs.New(errs.InvalidRequest, "USE is for scripts of the command line (millrace sql); here the request says the \"database\"")
	}
	panic("sql: a statement that nobody runs")
}

// path is the full path of a table, its virtual suffix included.
func (c *call) path(t tableName) (string, error) {
	if t.database != "" {
		return t.database + "." + t.table + t.suffix, nil
	}
	db, err := c.database(name{}, t.at)
	return db + "." + t.table + t.suffix, err
}

// database is the one that n names, or that of the request.
func (c *call) database(n name, at int) (string, error) {
	switch {
	case n.text != "":
		return n.text, nil
	case c.req.Database == "":
		return "", c.src.invalid(at, "no database is named: write database.table, or say the database with the request (\"database\", USE, --database)")
	}
	if err := millrace.ValidateName("database", c.req.Database); err != nil {
		return "", errs.New(errs.InvalidName, "%v", err)
	}
	return c.req.Database, nil
}

func (c *call) tablePath(t tableName) (millrace.TablePath, error) {
	p, err := c.path(t)
	if err != nil {
		return millrace.TablePath{}, err
	}
	path, err := millrace.ParseTablePath(p)
	if err != nil {
		return path, errs.New(errs.InvalidName, "%v", err)
	}
	return path, nil
}
