package iceberg

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"strconv"

	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"
	"github.com/google/uuid"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
)

// commit is a snapshot to be made: an edit of the files of a base, and what its summary
// says.
type commit struct {
	at     *version
	base   *snapshot   // of at; nil when it has none
	schema *ice.Schema // of the snapshot; nil: the base's
	spec   *ice.PartitionSpec
	edit
	operation table.Operation
	// properties go into the summary; without any of ours, those of the base that say
	// how far it is.
	properties ice.Properties
	table      ice.Properties         // of the lake table, afterwards; nil: as they are
	own        func(key string) error // of storeIO; nil: nobody asks
}

// publish writes the metadata of a commit and publishes it. errConflict: it did not happen
// and never will; started says whether it may have happened on another error.
func (t *lakeTable) publish(ctx context.Context, c *commit) (v *version, id int64, started bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, publishLimit)
	defer cancel()
	ch, err := t.stage(ctx, c)
	if err != nil {
		return nil, 0, false, err
	}
	if v, err = t.pointer.publish(ctx, ch); err != nil {
		return nil, 0, true, err
	}
	t.see(v)
	return v, ch.snapshot, true, nil
}

// stage writes the manifests of a commit and says how the metadata is to change.
func (t *lakeTable) stage(ctx context.Context, c *commit) (change, error) {
	id, err := newSnapshotID(c.at.meta)
	if err != nil {
		return change{}, err
	}
	var parent *table.Snapshot
	var parentProps ice.Properties
	if c.base != nil {
		parent = &c.base.snap
		if parent.Summary != nil {
			parentProps = parent.Summary.Properties
		}
	}
	updates, schema, err := schemaUpdates(c.at.meta, c.schema)
	if err != nil {
		return change{}, err
	}
	m := &manifestSet{ctx: ctx, t: t, io: &storeIO{ctx: ctx, store: t.f.o.Store, own: c.own}, meta: c.at.meta, schema: schema, snapshot: id}
	if err := m.build(parent, &c.edit, c.spec); err != nil {
		return change{}, err
	}
	sequence := c.at.meta.LastSequenceNumber() + 1
	list, err := m.writeList(sequence, parent)
	if err != nil {
		return change{}, err
	}
	props := m.properties(parentProps)
	maps.Copy(props, c.properties)
	if props[keyRound] == "" {
		for _, k := range []string{keyTable, keyRound, keySchema, keyOffsets, keyOffsetsFile, keySkipped, keyGaps} {
			if v, ok := parentProps[k]; ok {
				props[k] = v
			}
		}
	}
	props[keyCommit] = uuid.NewString()
	snap := table.Snapshot{
		SnapshotID: id, SequenceNumber: sequence, ManifestList: list, SchemaID: &schema.ID,
		TimestampMs: max(t.f.o.Clock.Now().UnixMilli(), c.at.meta.LastUpdatedMillis()),
		Summary:     &table.Summary{Operation: c.operation, Properties: props},
	}
	requirements := []table.Requirement{table.AssertTableUUID(c.at.meta.TableUUID()), table.AssertCurrentSchemaID(c.at.meta.CurrentSchema().ID)}
	if parent != nil {
		snap.ParentSnapshotID = &parent.SnapshotID
		requirements = append(requirements, table.AssertRefSnapshotID(table.MainBranch, &parent.SnapshotID))
	} else {
		requirements = append(requirements, table.AssertRefSnapshotID(table.MainBranch, nil))
	}
	if changed := changedProperties(c.at.meta.Properties(), c.table); len(changed) > 0 {
		updates = append(updates, table.NewSetPropertiesUpdate(changed))
	}
	updates = append(updates, table.NewAddSnapshotUpdate(&snap), table.NewSetSnapshotRefUpdate(table.MainBranch, id, table.BranchRef, 0, 0, 0))
	return change{seen: c.at, requirements: requirements, updates: updates, snapshot: id}, nil
}

// schemaUpdates makes a schema the current one; it gives the schema with its number.
func schemaUpdates(meta table.Metadata, want *ice.Schema) ([]table.Update, *ice.Schema, error) {
	current := meta.CurrentSchema()
	if want == nil || current.Equals(want) {
		return nil, current, nil
	}
	b, err := table.MetadataBuilderFromBase(meta, "")
	if err == nil {
		err = b.AddSchema(ice.NewSchemaWithIdentifiers(0, want.IdentifierFieldIDs, want.Fields()...))
	}
	if err == nil {
		err = b.SetCurrentSchemaID(-1)
	}
	if err != nil {
		return nil, nil, errs.New(errs.UnsupportedByLake, "the lake table cannot take the schema: %v", err)
	}
	next := b.CurrentSchema()
	return []table.Update{
		table.NewAddSchemaUpdate(ice.NewSchemaWithIdentifiers(next.ID, next.IdentifierFieldIDs, next.Fields()...)), table.NewSetCurrentSchemaUpdate(-1),
	}, next, nil
}

// changedProperties are those that want has otherwise.
func changedProperties(have, want ice.Properties) ice.Properties {
	out := ice.Properties{}
	for k, v := range want {
		if have[k] != v {
			out[k] = v
		}
	}
	return out
}

// newSnapshotID is a random positive number that metadata does not have.
func newSnapshotID(meta table.Metadata) (int64, error) {
	for {
		var b [8]byte
		if _, err := rand.Read(b[:]); err != nil {
			return 0, fmt.Errorf("number a snapshot: %w", err)
		}
		id := int64(binary.LittleEndian.Uint64(b[:]) >> 1)
		if id > 0 && meta.SnapshotByID(id) == nil {
			return id, nil
		}
	}
}

// commit publishes the round; see lake.Round.
func (r *round) commit(ctx context.Context, next lake.Offsets) (*snapshot, error) {
	c, err := r.toCommit(ctx, next)
	if err != nil {
		return nil, err
	}
	v, id, started, err := r.t.publish(ctx, c)
	if errors.Is(err, errConflict) {
		return nil, fmt.Errorf("%w: %w", lake.ErrConflict, err)
	}
	if started {
		r.mu.Lock()
		r.mu.ended = true // what may be published is not ours any more
		r.mu.Unlock()
	}
	if err != nil {
		return nil, err
	}
	return r.t.snapshotOf(ctx, v, v.meta.SnapshotByID(id))
}

// toCommit writes the offsets and says what is to be committed.
func (r *round) toCommit(ctx context.Context, next lake.Offsets) (*commit, error) {
	if err := r.settle(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	e, ended, skipped, gaps := r.mu.edit, r.mu.ended, r.mu.skipped, r.mu.gaps
	r.mu.Unlock()
	if ended {
		return nil, errClosed
	}
	props := ice.Properties{
		keyTable:  strconv.FormatUint(uint64(r.t.id), 10),
		keyRound:  strconv.FormatInt(r.number, 10),
		keySchema: strconv.FormatUint(uint64(r.desc.Schema.ID), 10),
	}
	if r.base != nil {
		skipped += r.base.skipped
		gaps = max(gaps, r.base.gaps)
	}
	if gaps > 0 {
		props[keyGaps] = strconv.FormatInt(gaps, 10)
	}
	if skipped > 0 {
		props[keySkipped] = strconv.FormatInt(skipped, 10)
	}
	if raw := appendOffsets(nil, next); len(raw) <= maxInlineOffsets {
		props[keyOffsets] = string(raw)
	} else {
		name := "offsets-" + uuid.NewString() + ".json"
		key := r.t.folder + "/metadata/" + name
		if err := r.own(key); err != nil {
			return nil, err
		}
		if err := r.t.f.o.Store.Put(ctx, key, raw); err != nil {
			return nil, storeError(err, "write %s", uriOf(r.t.f.o.Store, key))
		}
		props[keyOffsetsFile] = name
	}
	operation := table.OpAppend
	if len(e.remove)+len(e.addDeletes) > 0 {
		operation = table.OpOverwrite
		if len(e.addData) == 0 {
			operation = table.OpDelete
		}
	}
	return &commit{
		at: r.at, base: r.base, schema: r.schema, spec: &r.spec, edit: e,
		operation: operation, properties: props, table: r.t.properties(r.desc), own: r.own,
	}, nil
}
