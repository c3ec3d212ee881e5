package iceberg

import (
	"strconv"

	ice "github.com/apache/iceberg-go"

	"github.com/millrace/millrace/lake"
)

// tally counts what a commit adds and removes, as the summary of its snapshot says it.
type tally struct{ added, gone counts }

type counts struct{ dataFiles, records, deleteFiles, positions, equalities, bytes int64 }

func (c *counts) count(f ice.DataFile) {
	c.bytes += f.FileSizeBytes()
	if f.ContentType() == ice.EntryContentData {
		c.dataFiles++
		c.records += f.Count()
		return
	}
	c.deleteFiles++
	if f.ContentType() == ice.EntryContentEqDeletes { // of another writer
		c.equalities += f.Count()
		return
	}
	c.positions += f.Count()
}

func (t *tally) add(f ice.DataFile)    { t.added.count(f) }
func (t *tally) remove(f ice.DataFile) { t.gone.count(f) }

// The totals that summaries carry on from snapshot to snapshot.
const (
	totalRecords     = "total-records"
	totalDataFiles   = "total-data-files"
	totalDeleteFiles = "total-delete-files"
	totalPositions   = "total-position-deletes"
	totalEqualities  = "total-equality-deletes"
	totalBytes       = "total-files-size"
)

// properties are those of a summary, given that of the parent.
func (t *tally) properties(parent ice.Properties) ice.Properties {
	out := ice.Properties{}
	for _, c := range []struct {
		total, added, gone string
		plus, minus        int64
	}{
		{totalDataFiles, "added-data-files", "deleted-data-files", t.added.dataFiles, t.gone.dataFiles},
		{totalRecords, "added-records", "deleted-records", t.added.records, t.gone.records},
		{totalDeleteFiles, "added-delete-files", "removed-delete-files", t.added.deleteFiles, t.gone.deleteFiles},
		{totalPositions, "added-position-deletes", "removed-position-deletes", t.added.positions, t.gone.positions},
		{totalBytes, "added-files-size", "removed-files-size", t.added.bytes, t.gone.bytes},
		{totalEqualities, "added-equality-deletes", "removed-equality-deletes", t.added.equalities, t.gone.equalities},
	} {
		if c.plus > 0 {
			out[c.added] = strconv.FormatInt(c.plus, 10)
		}
		if c.minus > 0 {
			out[c.gone] = strconv.FormatInt(c.minus, 10)
		}
		out[c.total] = strconv.FormatInt(parent.GetInt64(c.total, 0)+c.plus-c.minus, 10)
	}
	return out
}

// Skipped implements lake.Snapshot.
func (s *snapshot) Skipped() int64 { return s.skipped }

// Gaps implements lake.Snapshot.
func (s *snapshot) Gaps() int64 { return s.gaps }

// Totals implements lake.Snapshot.
func (s *snapshot) Totals() lake.Totals {
	if s.snap.Summary == nil {
		return lake.Totals{}
	}
	p := s.snap.Summary.Properties
	deleted := p.GetInt64(totalPositions, 0)
	return lake.Totals{
		Rows: p.GetInt64(totalRecords, 0) - deleted, DeletedRows: deleted,
		DataFiles: p.GetInt64(totalDataFiles, 0), DeleteFiles: p.GetInt64(totalDeleteFiles, 0), Bytes: p.GetInt64(totalBytes, 0),
		EqualityDeletes: p.GetInt64(totalEqualities, 0),
	}
}
