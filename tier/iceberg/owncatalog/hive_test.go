package owncatalog

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/apache/thrift/lib/go/thrift"
	"github.com/beltran/gohive/hive_metastore"
)

// hiveServer is as much of a Hive metastore as its client here needs, over Thrift. Like
// Hive 4 it has no get_table, and compares pointers; an older one does not.
type hiveServer struct {
	hive_metastore.ThriftHiveMetastore // nil: what is not below is not called
	addr                               string

	mu        sync.Mutex
	version   string
	databases map[string]bool
	tables    map[string]*hive_metastore.Table
	locks     map[int64]string
	lastLock  int64
	// lose is asked before a request is carried out and after: whether its answer is lost.
	// Nil: none is.
	lose func(action string, done bool) bool
	// hold takes the first change that comes, instead of its being carried out.
	hold  func(change func())
	derby bool // it says of each comparison that it cannot compare
}

func newHiveServer(t *testing.T) *hiveServer {
	t.Helper()
	h := &hiveServer{version: "4.0.1", databases: map[string]bool{}, tables: map[string]*hive_metastore.Table{}, locks: map[int64]string{}}
	socket, err := thrift.NewTServerSocket("127.0.0.1:0")
	if err == nil {
		err = socket.Listen()
	}
	if err != nil {
		t.Fatal(err)
	}
	h.addr = socket.Addr().String()
	server := thrift.NewTSimpleServer4(hive_metastore.NewThriftHiveMetastoreProcessor(h), socket, thrift.NewTBufferedTransportFactory(4096), thrift.NewTBinaryProtocolFactoryConf(nil))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve()
	}()
	t.Cleanup(func() {
		_ = server.Stop()
		<-done
	})
	return h
}

func (h *hiveServer) options() Options {
	return Options{Kind: Hive, URI: "thrift://" + h.addr, Properties: map[string]string{"lock-check-retries": "1"}}
}

// change carries out a change, unless it or its answer is lost.
func (h *hiveServer) change(action string, f func() error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lose != nil && h.lose(action, false) {
		return thrift.ErrAbandonRequest
	}
	err := f()
	if h.lose != nil && h.lose(action, true) {
		return thrift.ErrAbandonRequest
	}
	return err
}

func (h *hiveServer) GetVersion(context.Context) (string, error) { return h.version, nil }

func (h *hiveServer) GetDatabase(_ context.Context, name string) (*hive_metastore.Database, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.databases[name] {
		return nil, &hive_metastore.NoSuchObjectException{Message: name}
	}
	return &hive_metastore.Database{Name: name}, nil
}

func (h *hiveServer) CreateDatabase(_ context.Context, db *hive_metastore.Database) error {
	return h.change("database", func() error {
		switch {
		case db.LocationUri == "":
			return &hive_metastore.MetaException{Message: "Can not create a Path from an empty string"}
		case h.databases[db.Name]:
			return &hive_metastore.AlreadyExistsException{Message: db.Name}
		}
		h.databases[db.Name] = true
		return nil
	})
}

func (h *hiveServer) GetTable(context.Context, string, string) (*hive_metastore.Table, error) {
	return nil, thrift.NewTApplicationException(thrift.UNKNOWN_METHOD, "Invalid method name: 'get_table'")
}

func (h *hiveServer) GetTableReq(_ context.Context, r *hive_metastore.GetTableRequest) (*hive_metastore.GetTableResult_, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, ok := h.tables[r.DbName+"."+r.TblName]
	if !ok {
		return nil, &hive_metastore.NoSuchObjectException{Message: r.TblName}
	}
	out := *t
	out.Parameters = maps.Clone(t.Parameters)
	return &hive_metastore.GetTableResult_{Table: &out}, nil
}

func (h *hiveServer) CreateTable(_ context.Context, t *hive_metastore.Table) error {
	return h.change("create", func() error {
		key := t.DbName + "." + t.TableName
		if _, ok := h.tables[key]; ok {
			return &hive_metastore.AlreadyExistsException{Message: key}
		}
		h.tables[key] = t
		return nil
	})
}

func (h *hiveServer) AlterTableWithEnvironmentContext(_ context.Context, db, name string, t *hive_metastore.Table, env *hive_metastore.EnvironmentContext) error {
	alter := func() error {
		old, ok := h.tables[db+"."+name]
		if !ok {
			return &hive_metastore.InvalidOperationException{Message: name}
		}
		key, given := env.Properties["expected_parameter_key"]
		switch {
		case given && h.derby:
			return &hive_metastore.MetaException{Message: "Comparisons between 'CLOB (UCS_BASIC)' and 'CLOB (UCS_BASIC)' are not supported."}
		case given && h.version >= "4" && old.Parameters[key] != env.Properties["expected_parameter_value"]:
			return &hive_metastore.MetaException{Message: fmt.Sprintf("The table has been modified. The parameter value for key '%s' is not the expected one", key)}
		}
		h.tables[db+"."+name] = t
		return nil
	}
	h.mu.Lock()
	hold := h.hold
	h.hold = nil
	h.mu.Unlock()
	if hold != nil {
		hold(func() { _ = h.change("alter", alter) })
		return thrift.ErrAbandonRequest
	}
	return h.change("alter", alter)
}

func (h *hiveServer) DropTable(_ context.Context, db, name string, _ bool) error {
	return h.change("drop", func() error {
		delete(h.tables, db+"."+name)
		return nil
	})
}

func (h *hiveServer) Lock(_ context.Context, r *hive_metastore.LockRequest) (*hive_metastore.LockResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastLock++
	of := r.Component[0].Dbname + "." + r.Component[0].GetTablename()
	for _, held := range h.locks {
		if held == of {
			return &hive_metastore.LockResponse{Lockid: h.lastLock, State: hive_metastore.LockState_WAITING}, nil
		}
	}
	h.locks[h.lastLock] = of
	return &hive_metastore.LockResponse{Lockid: h.lastLock, State: hive_metastore.LockState_ACQUIRED}, nil
}

func (h *hiveServer) CheckLock(_ context.Context, r *hive_metastore.CheckLockRequest) (*hive_metastore.LockResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	state := hive_metastore.LockState_WAITING
	if h.locks[r.Lockid] != "" {
		state = hive_metastore.LockState_ACQUIRED
	}
	return &hive_metastore.LockResponse{Lockid: r.Lockid, State: state}, nil
}

func (h *hiveServer) Unlock(_ context.Context, r *hive_metastore.UnlockRequest) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.locks, r.Lockid)
	return nil
}

// expire lets all locks expire, and says how many there were.
func (h *hiveServer) expire() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.locks)
	clear(h.locks)
	return n
}
