package rest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/row/jsonrow"
)

// ListPartitions answers list_partitions.
func (h *Handler) ListPartitions(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath, p openapi.ListPartitionsParams) {
	n, token, err := page(p.Limit, p.PageToken)
	if err == nil {
		err = checkQuery(r.URL.Query(), "limit", "page_token")
	}
	var t *millrace.Table
	if err == nil {
		t, err = h.partitioned(r, database, table)
	}
	var ps []*millrace.Partition
	if err == nil {
		ps, err = h.o.Catalog.Partitions(r.Context(), t.ID)
	}
	if err == nil && token != "" {
		ps, err = partitionsAfter(ps, token)
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	out := openapi.PartitionList{Partitions: []openapi.Partition{}}
	if len(ps) > n {
		ps = ps[:n]
		out.NextPageToken = ps[n-1].Name
	}
	for _, p := range ps {
		out.Partitions = append(out.Partitions, partitionAnswer(t, p))
	}
	h.answer(w, http.StatusOK, out)
}

// partitionsAfter are the partitions after the page that ends with the one named by the
// token, which may be gone.
func partitionsAfter(ps []*millrace.Partition, token string) ([]*millrace.Partition, error) {
	if _, _, err := millrace.ParsePartitionName(token); err != nil {
		return nil, errs.New(errs.InvalidValue, "page_token is not one that a list returned")
	}
	at, found := slices.BinarySearchFunc(ps, token, func(p *millrace.Partition, name string) int { return strings.Compare(p.Name, name) })
	if found {
		at++
	}
	return ps[at:], nil
}

func partitionAnswer(t *millrace.Table, p *millrace.Partition) openapi.Partition {
	return openapi.Partition{
		ID: int64(p.ID), Name: p.Name, Partition: jsonrow.AppendPartitionObject(nil, t, p.Values), State: openapi.PartitionState(p.Shown()),
	}
}

// partitioned finds the table of a path, which has to have partitions.
func (h *Handler) partitioned(r *http.Request, database, table string) (*millrace.Table, error) {
	t, err := h.table(r, database, table)
	if err == nil && !t.Partitioned() {
		err = errs.New(errs.WrongTableKind, "table %s is not partitioned: a table has partitions from its creation, by partition_by, or never", t.Path)
	}
	return t, err
}

// CreatePartition answers create_partition.
func (h *Handler) CreatePartition(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath, p openapi.CreatePartitionParams) {
	var req openapi.CreatePartition
	err := checkQuery(r.URL.Query(), "if_not_exists")
	if err == nil {
		err = decode(w, r, &req)
	}
	var t *millrace.Table
	if err == nil {
		t, err = h.partitioned(r, database, table)
	}
	var values []string
	if err == nil {
		values, err = partitionValues(t, req.Partition)
	}
	var made *millrace.Partition
	created := false
	if err == nil {
		made, created, err = h.o.Catalog.EnsurePartition(r.Context(), t.ID, values)
	}
	if err == nil && !created && (p.IfNotExists == nil || !*p.IfNotExists) {
		err = errs.New(errs.PartitionAlreadyExists, "table %s has partition %s already", t.Path, made.Name)
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	h.answer(w, status, partitionAnswer(t, made))
}

// partitionValues reads a partition in either form: the object of its values, or its name.
func partitionValues(t *millrace.Table, raw json.RawMessage) ([]string, error) {
	if len(raw) == 0 {
		return nil, errs.New(errs.MissingColumn, `name the partition by its values, {"partition":{"dt":"2026-08-26"}}, or by its name, {"partition":"dt=2026-08-26"}`)
	}
	var name string
	if json.Unmarshal(raw, &name) == nil {
		return jsonrow.PartitionOfName(t, name)
	}
	return jsonrow.PartitionOfObject(t, raw)
}

// DropPartition answers drop_partition.
func (h *Handler) DropPartition(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath, p openapi.DropPartitionParams) {
	err := checkQuery(r.URL.Query(), "name", "if_exists")
	var t *millrace.Table
	if err == nil {
		t, err = h.partitioned(r, database, table)
	}
	if err == nil {
		err = h.o.Router.DropPartition(r.Context(), t, p.Name)
	}
	if errs.Is(err, errs.PartitionNotFound) && p.IfExists != nil && *p.IfExists {
		err = nil
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
