package rest

import (
	"context"
	"net/http"
	"strconv"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/openapi"
)

// Lake is what this door needs of tiering.
type Lake interface {
	// Status says how far a table is in the lake.
	Status(ctx context.Context, t *millrace.Table) (lake.Status, error)
	// Tier takes a table to the lake now, and says how far it is then.
	Tier(ctx context.Context, t *millrace.Table) (lake.Status, error)
	// Purges are the dropped tables whose lake tables are still to be removed.
	Purges() []lake.Purging
}

// maxShownPurges bounds what an answer lists.
const maxShownPurges = 1000

// purgesAnswer are the lake tables that are to be removed.
func (h *Handler) purgesAnswer() (out []openapi.LakePurge) {
	if h.o.Lake == nil {
		return nil
	}
	all := h.o.Lake.Purges()
	for _, p := range all[:min(len(all), maxShownPurges)] {
		out = append(out, openapi.LakePurge{TableID: int64(p.Table), Table: p.Path.String(), DroppedAt: p.DroppedAt, Error: failureAnswer(p.Failure)})
	}
	return out
}

func failureAnswer(f *lake.Failure) *openapi.LakeError {
	if f == nil {
		return nil
	}
	return &openapi.LakeError{Code: f.Code, Detail: f.Detail, Since: f.Since}
}

// GetLake answers get_lake.
func (h *Handler) GetLake(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath) {
	t, err := h.inLake(r, database, table)
	var s lake.Status
	if err == nil {
		s, err = h.o.Lake.Status(r.Context(), t)
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	h.answer(w, http.StatusOK, lakeAnswer(&s))
}

// TierLake answers tier_lake.
func (h *Handler) TierLake(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath, _ openapi.TierLakeParams) {
	t, err := h.inLake(r, database, table)
	if err == nil {
		err = h.allow(r, millrace.VerbAlter, t)
	}
	var s lake.Status
	if err == nil {
		s, err = h.o.Lake.Tier(r.Context(), t)
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	out := lakeAnswer(&s)
	out.RowsTiered = &s.Tiered
	h.answer(w, http.StatusOK, out)
}

// inLake finds the table of a path, which has to be in the lake, or to have been.
func (h *Handler) inLake(r *http.Request, database, table string) (*millrace.Table, error) {
	if err := checkQuery(r.URL.Query()); err != nil {
		return nil, err
	}
	t, err := h.table(r, database, table)
	switch {
	case err != nil:
		return nil, err
	case t.Options.Lake == nil:
		return nil, errs.New(errs.InvalidValue, "table %s is not in the lake: set its property table.datalake.enabled to true", t.Path)
	case h.o.Lake == nil:
		return nil, errs.New(errs.Unavailable, "no process of the cluster runs the role tier, which the tables of the lake need")
	}
	return t, nil
}

func lakeAnswer(s *lake.Status) openapi.LakeStatus {
	out := openapi.LakeStatus{
		TableID: int64(s.Table), Enabled: s.Enabled, Format: openapi.LakeStatusFormat(s.Format), Location: s.Location, State: openapi.LakeStatusState(s.State),
		Round: s.Round, CommittedAt: s.CommittedAt, LagMs: s.Lag.Milliseconds(), Offsets: openapi.Offsets{}, PendingRows: s.Pending, SkippedRows: s.Skipped,
		Totals: openapi.LakeTotals{
			Rows: s.Totals.Rows, DeletedRows: s.Totals.DeletedRows, DataFiles: s.Totals.DataFiles, DeleteFiles: s.Totals.DeleteFiles, Bytes: s.Totals.Bytes,
		},
	}
	if s.Snapshot != 0 {
		out.SnapshotID = strconv.FormatInt(s.Snapshot, 10)
	}
	out.Error = failureAnswer(s.Failure)
	for k, o := range s.Offsets {
		out.Offsets[k] = int64(o)
	}
	return out
}
