package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	millrace "github.com/millrace/millrace"
)

// apply is the snapshot after a commit that another process made. What it costs
// follows what the commit changed, and the lists that have to be copied for it.
func (s *snapshot) apply(revision uint64, writes []Write) (*snapshot, error) {
	next := s.edit()
	a := applier{
		snapshot: next, gone: map[millrace.TableID]bool{},
		schemas: map[millrace.TableID][]*millrace.Schema{},
	}
	// In key order, as entries are loaded; of two writes of a key the last one counts.
	writes = slices.Clone(writes)
	slices.SortStableFunc(writes, func(a, b Write) int { return cmp.Compare(a.Key, b.Key) })
	kept := writes[:0]
	for i, w := range writes {
		if i+1 == len(writes) || writes[i+1].Key != w.Key {
			kept = append(kept, w)
		}
	}
	head := slices.IndexFunc(kept, func(w Write) bool { return w.Key == keyHead })
	if head < 0 || kept[head].Value == nil {
		return nil, corrupt("commit %d does not write key %q", revision, keyHead)
	}
	if err := next.setHead(Entry{keyHead, kept[head].Value, revision}); err != nil {
		return nil, err
	}
	if err := a.deletions(kept); err != nil {
		return nil, err
	}
	for _, step := range []struct {
		prefix string
		put    func(Entry) error
	}{
		{prefixDatabase, a.database},
		{prefixSchema, a.schema},
		{prefixTable, a.table},
		{prefixPartition, a.partition},
		{prefixPurge, a.purge},
		{prefixIDs, a.ids},
		{prefixGrant, a.grant},
		{prefixQuota, a.quota},
		{keySigning, next.setSigning},
	} {
		for _, w := range kept {
			if w.Value == nil || !strings.HasPrefix(w.Key, step.prefix) {
				continue
			}
			if err := step.put(Entry{w.Key, w.Value, revision}); err != nil {
				return nil, err
			}
		}
	}
	for id := range a.schemas {
		return nil, corrupt("commit %d writes schemas of table %d, and not the table", revision, id)
	}
	return next, nil
}

// applier makes the changes of one commit.
type applier struct {
	*snapshot

	gone    map[millrace.TableID]bool               // tables that the commit deletes
	schemas map[millrace.TableID][]*millrace.Schema // what it writes, until the table is met
}

// deletions removes what is deleted. What belongs to a table goes with it.
func (a *applier) deletions(writes []Write) error {
	dropped := map[millrace.DatabaseID]bool{}
	for _, w := range writes {
		if known := slices.ContainsFunc([]string{prefixDatabase, prefixGrant, prefixIDs, prefixPartition, prefixPurge, prefixQuota, prefixSchema, prefixTable},
			func(p string) bool { return strings.HasPrefix(w.Key, p) }); !known && w.Key != keyHead && w.Key != keySigning {
			return newerRelease(fmt.Sprintf("key %q is of no known kind", w.Key))
		}
		if w.Value != nil {
			continue
		}
		if id, ok := strings.CutPrefix(w.Key, prefixDatabase); ok {
			n, err := strconv.ParseUint(id, 10, 32)
			if err != nil {
				return corrupt("key %q is deleted", w.Key)
			}
			dropped[millrace.DatabaseID(n)] = true
		} else if at, ok := parseRef(w.Key); ok && at.partition == 0 {
			a.gone[at.table] = true
		}
	}
	for id := range dropped {
		d := a.byID[id]
		if d == nil {
			continue
		}
		for _, t := range d.tables {
			if !a.gone[t.ID] {
				return corrupt("database %d is deleted, and its table %d is not", id, t.ID)
			}
		}
		a.removeDatabase(d)
	}
	for id := range a.gone {
		if t := a.tables[id]; t != nil {
			a.removeTable(t)
		}
	}
	for _, w := range writes {
		if w.Value == nil {
			if err := a.deleteOf(w.Key); err != nil {
				return err
			}
		}
	}
	return nil
}

// deleteOf deletes a part of a table that stays.
func (a *applier) deleteOf(key string) error {
	if at, ok := parseRef(key); ok && at.partition != 0 {
		ps := a.partitions[at.table]
		if p := ps.withID(at.partition); p != nil {
			a.partitions = with(a.partitions, at.table, ps.without(p))
		}
		return nil
	}
	if id, ok := strings.CutPrefix(key, prefixIDs); ok {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return corrupt("key %q is deleted", key)
		}
		a.nextIDs = without(a.nextIDs, millrace.TableID(n))
		return nil
	}
	if id, ok := strings.CutPrefix(key, prefixGrant); ok {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return corrupt("key %q is deleted", key)
		}
		a.dropGrants(func(g *millrace.Grant) bool { return g.ID == millrace.GrantID(n) })
		return nil
	}
	if id, ok := strings.CutPrefix(key, prefixPurge); ok {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return corrupt("key %q is deleted", key)
		}
		if i, there := a.findPurge(millrace.TableID(n)); there {
			a.purges = slices.Delete(slices.Clone(a.purges), i, i+1)
		}
		return nil
	}
	if id, ok := strings.CutPrefix(key, prefixQuota); ok {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return corrupt("key %q is deleted", key)
		}
		a.dropQuota(millrace.QuotaID(n))
		return nil
	}
	if rest, ok := strings.CutPrefix(key, prefixSchema); ok {
		id, _, _ := strings.Cut(rest, "/")
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil || a.tables[millrace.TableID(n)] != nil {
			return corrupt("key %q is deleted, and its table is not", key)
		}
	}
	return nil
}

func (a *applier) database(e Entry) error {
	d, err := decodeDatabase(e)
	if err != nil {
		return err
	}
	switch there := a.byName[fold(d.Name)]; {
	case there == nil:
		if d.ID >= a.head.NextDatabase || a.byID[d.ID] != nil {
			return corrupt("key %q holds database %d, %q", e.Key, d.ID, d.Name)
		}
		a.addDatabase(d)
	case there.ID == d.ID && there.Name == d.Name:
		a.editDatabase(there).Database = d.Database
	default:
		return corrupt("key %q holds database %d, %q", e.Key, d.ID, d.Name)
	}
	return nil
}

func (a *applier) schema(e Entry) error {
	r, err := decodeSchema(e)
	if err != nil {
		return err
	}
	a.schemas[r.TableID] = append(a.schemas[r.TableID], r.Schema)
	return nil
}

func (a *applier) table(e Entry) error {
	var r tableRecord
	if err := decodeRecord(e, &r); err != nil {
		return err
	}
	old := a.tables[r.ID]
	var schemas []*millrace.Schema
	if old != nil {
		schemas = slices.Clone(old.schemas)
	}
	for _, s := range a.schemas[r.ID] {
		i, there := slices.BinarySearchFunc(schemas, s.ID, func(s *millrace.Schema, id millrace.SchemaID) int { return cmp.Compare(s.ID, id) })
		if there {
			schemas[i] = s
		} else {
			schemas = slices.Insert(schemas, i, s)
		}
	}
	delete(a.schemas, r.ID)
	d := a.byID[r.DatabaseID]
	if d == nil {
		return corrupt("table %d is in database %d, which does not exist", r.ID, r.DatabaseID)
	}
	t, err := a.decodeTable(e, &r, d, schemas)
	if err != nil {
		return err
	}
	there := d.byName[fold(r.Name)]
	switch {
	case old == nil && there != nil:
		return corrupt("database %d has two tables named %q", r.DatabaseID, r.Name)
	case old == nil:
		a.addTable(d, t)
	case there != old || old.Path.Table != r.Name:
		return newerRelease(fmt.Sprintf("table %d has another name or database", r.ID))
	default:
		a.replaceTable(t)
	}
	return nil
}

func (a *applier) grant(e Entry) error {
	g, err := decodeGrant(e)
	if err == nil {
		err = a.checkGrants([]*millrace.Grant{g})
	}
	if err != nil {
		return err
	}
	a.putGrant(g)
	return nil
}

func (a *applier) partition(e Entry) error {
	r, err := a.decodePartition(e)
	if err != nil {
		return err
	}
	t := a.tables[r.TableID]
	if t == nil {
		return corrupt("there are partitions of table %d, which does not exist", r.TableID)
	}
	p, err := r.of(t.Table)
	if err != nil {
		return err
	}
	ps := a.partitions[t.ID]
	named := ps.named(p.Name)
	if named != nil && named.ID != p.ID {
		return corrupt("table %d has two partitions named %q", t.ID, p.Name)
	}
	if ps != nil && named == nil {
		if _, other := ps.findID(p.ID); other {
			return corrupt("partition %d of table %d has another name", p.ID, t.ID)
		}
	}
	a.partitions = with(a.partitions, t.ID, ps.with(p))
	return nil
}

func (a *applier) purge(e Entry) error {
	p, err := a.decodePurge(e)
	if err != nil {
		return err
	}
	if a.tables[p.Table] != nil {
		return corrupt("the lake table of table %d is to be removed, and the table exists", p.Table)
	}
	i, there := a.findPurge(p.Table)
	if there {
		a.purges = slices.Clone(a.purges)
		a.purges[i] = p
	} else {
		a.purges = slices.Insert(slices.Clip(a.purges), i, p)
	}
	return nil
}

func (a *applier) ids(e Entry) error {
	r, err := decodeIDs(e)
	if err != nil {
		return err
	}
	if t := a.tables[r.TableID]; t == nil || t.Schema.AutoIncrement() < 0 {
		return corrupt("there are ids of table %d, which has no auto-increment column", r.TableID)
	}
	a.nextIDs = with(a.nextIDs, r.TableID, r.Next)
	return nil
}
