package owncatalog

import (
	"context"
	"sync"

	"github.com/beltran/gohive/hive_metastore"
)

// locks are those that we hold in a metastore. The zero value holds none.
type locks struct {
	mu   sync.Mutex
	held map[int64]string // the table of a lock
	kept map[string]bool  // tables whose lock is left to expire
}

func tableKey(db, name string) string { return db + "." + name }

// keep leaves the lock of a table to expire: a change of the table may be under way in
// the metastore, which nothing but the lock keeps from another's.
func (l *locks) keep(db, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept == nil {
		l.kept = map[string]bool{}
	}
	l.kept[tableKey(db, name)] = true
}

// took notes a lock.
func (l *locks) took(id int64, of string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[int64]string{}
	}
	l.held[id] = of
}

// drop forgets a lock, and says whether it is to be given back.
func (l *locks) drop(id int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.held[id]
	keep := l.kept[of]
	delete(l.held, id)
	delete(l.kept, of)
	return !keep
}

// Lock implements hive.HiveClient.
func (m *metastore) Lock(ctx context.Context, r *hive_metastore.LockRequest) (*hive_metastore.LockResponse, error) {
	r.User, r.Hostname = defaultName, m.host
	of := ""
	for _, c := range r.Component {
		of = tableKey(c.Dbname, c.GetTablename())
	}
	got, err := ask(ctx, m, func(c *metastoreClient) (*hive_metastore.LockResponse, error) { return c.Lock(ctx, r) })
	if err == nil {
		m.locks.took(got.Lockid, of)
	}
	return got, err
}

// CheckLock implements hive.HiveClient.
func (m *metastore) CheckLock(ctx context.Context, id int64) (*hive_metastore.LockResponse, error) {
	return ask(ctx, m, func(c *metastoreClient) (*hive_metastore.LockResponse, error) {
		return c.CheckLock(ctx, &hive_metastore.CheckLockRequest{Lockid: id})
	})
}

// Unlock implements hive.HiveClient.
func (m *metastore) Unlock(ctx context.Context, id int64) error {
	if !m.locks.drop(id) {
		return nil
	}
	return m.request(ctx, func(c *metastoreClient) error {
		return c.Unlock(ctx, &hive_metastore.UnlockRequest{Lockid: id})
	})
}
