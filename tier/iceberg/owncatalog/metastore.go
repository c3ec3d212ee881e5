package owncatalog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	icehive "github.com/apache/iceberg-go/catalog/hive"
	"github.com/apache/thrift/lib/go/thrift"
	"github.com/beltran/gohive/hive_metastore"
)

// Bounds of a connection to a metastore.
const (
	dialTime = 10 * time.Second
	waitTime = 30 * time.Second // for a piece of an answer
)

// metastore is a client of a Hive metastore over plain Thrift. Each request has a
// connection of its own: Thrift's are for one at a time, and not to be used after a
// failure.
type metastore struct {
	addrs []string // host:port, in the order in which they are tried
	host  string   // ours, for those who look at locks
	locks locks
	// lockOnly: the metastore said that it cannot compare pointers.
	lockOnly atomic.Bool
}

var _ icehive.HiveClient = (*metastore)(nil)

type metastoreClient = hive_metastore.ThriftHiveMetastoreClient

// request makes a request.
func (m *metastore) request(ctx context.Context, f func(*metastoreClient) error) error {
	conn, err := m.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	conf := &thrift.TConfiguration{SocketTimeout: waitTime}
	transport := thrift.NewTBufferedTransport(thrift.NewTSocketFromConnConf(conn, conf), 16<<10)
	protocol := thrift.NewTBinaryProtocolConf(transport, conf)
	err = f(hive_metastore.NewThriftHiveMetastoreClient(thrift.NewTStandardClient(protocol, protocol)))
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}

// dial connects to the first metastore that answers.
func (m *metastore) dial(ctx context.Context) (net.Conn, error) {
	var all []error
	for _, addr := range m.addrs {
		conn, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn, nil
		}
		all = append(all, err)
	}
	return nil, errors.Join(all...)
}

// ask makes a request that has an answer.
func ask[T any](ctx context.Context, m *metastore, f func(*metastoreClient) (T, error)) (out T, err error) {
	err = m.request(ctx, func(c *metastoreClient) (err error) {
		out, err = f(c)
		return err
	})
	return out, err
}

// Close implements hive.HiveClient.
func (m *metastore) Close() error { return nil }

// GetDatabase implements hive.HiveClient.
func (m *metastore) GetDatabase(ctx context.Context, name string) (*hive_metastore.Database, error) {
	return ask(ctx, m, func(c *metastoreClient) (*hive_metastore.Database, error) { return c.GetDatabase(ctx, name) })
}

// CreateDatabase implements hive.HiveClient.
func (m *metastore) CreateDatabase(ctx context.Context, db *hive_metastore.Database) error {
	return m.request(ctx, func(c *metastoreClient) error { return c.CreateDatabase(ctx, db) })
}

// AlterDatabase implements hive.HiveClient.
func (m *metastore) AlterDatabase(ctx context.Context, name string, db *hive_metastore.Database) error {
	return m.request(ctx, func(c *metastoreClient) error { return c.AlterDatabase(ctx, name, db) })
}

// DropDatabase implements hive.HiveClient.
func (m *metastore) DropDatabase(ctx context.Context, name string, deleteData, cascade bool) error {
	return m.request(ctx, func(c *metastoreClient) error { return c.DropDatabase(ctx, name, deleteData, cascade) })
}

// GetAllDatabases implements hive.HiveClient.
func (m *metastore) GetAllDatabases(ctx context.Context) ([]string, error) {
	return ask(ctx, m, func(c *metastoreClient) ([]string, error) { return c.GetAllDatabases(ctx) })
}

// GetTables implements hive.HiveClient.
func (m *metastore) GetTables(ctx context.Context, db, pattern string) ([]string, error) {
	return ask(ctx, m, func(c *metastoreClient) ([]string, error) { return c.GetTables(ctx, db, pattern) })
}

// GetTable implements hive.HiveClient. Metastores from 4.1 on know the newer request
// only, those before 2.3 the older one.
func (m *metastore) GetTable(ctx context.Context, db, name string) (*hive_metastore.Table, error) {
	req := hive_metastore.NewGetTableRequest()
	req.DbName, req.TblName = db, name
	got, err := ask(ctx, m, func(c *metastoreClient) (*hive_metastore.GetTableResult_, error) { return c.GetTableReq(ctx, req) })
	if e, ok := errors.AsType[thrift.TApplicationException](err); ok && e.TypeId() == thrift.UNKNOWN_METHOD {
		return ask(ctx, m, func(c *metastoreClient) (*hive_metastore.Table, error) { return c.GetTable(ctx, db, name) })
	}
	if err != nil {
		return nil, err
	}
	return got.Table, nil
}

// CreateTable implements hive.HiveClient. A metastore makes a table once.
func (m *metastore) CreateTable(ctx context.Context, t *hive_metastore.Table) error {
	return m.request(ctx, func(c *metastoreClient) error { return c.CreateTable(ctx, t) })
}

// DropTable implements hive.HiveClient.
func (m *metastore) DropTable(ctx context.Context, db, name string, deleteData bool) error {
	return m.request(ctx, func(c *metastoreClient) error { return c.DropTable(ctx, db, name, deleteData) })
}

// AlterTable implements hive.HiveClient: it puts a table's new pointer in the place of
// the one that it was made from, and of no other one, where the metastore compares them
// (HIVE-26882; Hive 4). Whether it happened is looked up when no answer came; if it has
// not, it still may.
func (m *metastore) AlterTable(ctx context.Context, db, name string, t *hive_metastore.Table) error {
	err := m.alter(ctx, db, name, t)
	if err != nil && !m.lockOnly.Load() && cannotCompare(err) {
		m.lockOnly.Store(true)
		err = m.alter(ctx, db, name, t)
	}
	if err == nil || answered(err) {
		return err
	}
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTime)
	defer cancel()
	if now, e := m.GetTable(look, db, name); e == nil && now.Parameters[icehive.MetadataLocationKey] == t.Parameters[icehive.MetadataLocationKey] {
		return nil
	}
	if !m.compares(look) {
		m.locks.keep(db, name)
	}
	return err
}

// alter asks for a change of a table, which leaves its files alone.
func (m *metastore) alter(ctx context.Context, db, name string, t *hive_metastore.Table) error {
	props := map[string]string{"DO_NOT_UPDATE_STATS": "true"}
	if !m.lockOnly.Load() {
		props["expected_parameter_key"], props["expected_parameter_value"] = icehive.MetadataLocationKey, t.Parameters[icehive.PreviousMetadataLocationKey]
	}
	return m.request(ctx, func(c *metastoreClient) error {
		return c.AlterTableWithEnvironmentContext(ctx, db, name, t, &hive_metastore.EnvironmentContext{Properties: props})
	})
}

// cannotCompare says whether an error is that of a metastore over Derby, the database of
// those that somebody tries out: it cannot compare columns of the kind that has pointers.
func cannotCompare(err error) bool {
	return answered(err) && strings.Contains(err.Error(), "Comparisons between 'CLOB")
}

// answered says whether an error is the metastore's answer.
func answered(err error) bool {
	e, ok := errors.AsType[thrift.TException](err)
	return ok && (e.TExceptionType() == thrift.TExceptionTypeCompiled || e.TExceptionType() == thrift.TExceptionTypeApplication)
}

// compares says whether the metastore is known to compare pointers.
func (m *metastore) compares(ctx context.Context) bool {
	if m.lockOnly.Load() {
		return false
	}
	v, err := ask(ctx, m, func(c *metastoreClient) (string, error) { return c.GetVersion(ctx) })
	major, _, _ := strings.Cut(v, ".")
	return err == nil && len(major) == 1 && major >= "4" && major <= "9"
}
