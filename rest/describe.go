package rest

import (
	"encoding/hex"
	"net/http"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/router"
)

// ListBuckets answers list_buckets.
func (h *Handler) ListBuckets(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath, p openapi.ListBucketsParams) {
	n, token, err := page(p.Limit, p.PageToken)
	if err == nil {
		err = checkQuery(r.URL.Query(), "limit", "page_token")
	}
	var t *millrace.Table
	if err == nil {
		t, err = h.table(r, database, table)
	}
	var bs []router.BucketInfo
	next := ""
	if err == nil {
		bs, next, err = h.o.Router.Buckets(r.Context(), t, token, n)
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	owners := h.o.Members()
	out := openapi.BucketList{TableID: int64(t.ID), Buckets: []openapi.Bucket{}, NextPageToken: next}
	for _, b := range bs {
		out.Buckets = append(out.Buckets, openapi.Bucket{
			BucketKey: b.Key, Bucket: int(b.Bucket), Shard: int(b.Shard), Owner: owners.owner(b.Shard),
			Start: int64(b.Start), End: int64(b.End), Rows: b.Rows, Bytes: b.Bytes,
		})
	}
	h.answer(w, http.StatusOK, out)
}

// GetOffsets answers get_offsets.
func (h *Handler) GetOffsets(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath, p openapi.GetOffsetsParams) {
	at := &router.Position{Kind: router.Latest}
	err := checkQuery(r.URL.Query(), "at", "table_id")
	if err == nil && p.At != nil {
		at, err = router.ParsePosition(*p.At)
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	t, offsets, err := h.o.Router.Offsets(r.Context(), database+"."+table, tableID(p.TableID), *at)
	if err != nil {
		h.problem(w, r, err)
		return
	}
	out := openapi.TableOffsets{TableID: int64(t.ID), Offsets: openapi.Offsets{}}
	for k, o := range offsets {
		out.Offsets[k] = int64(o)
	}
	h.answer(w, http.StatusOK, out)
}

func tableID(p *openapi.TableID) *millrace.TableID {
	if p == nil {
		return nil
	}
	id := millrace.TableID(*p)
	return &id
}

// ListSchemas answers list_schemas.
func (h *Handler) ListSchemas(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath, _ openapi.ListSchemasParams) {
	vs, err := h.schemas(r, database, table)
	if err != nil {
		h.problem(w, r, err)
		return
	}
	out := openapi.TableSchemaList{Schemas: []openapi.TableSchema{}}
	for _, v := range vs {
		out.Schemas = append(out.Schemas, openapi.TableSchema{SchemaID: int64(v.ID), Columns: columnAnswers(v.Columns)})
	}
	h.answer(w, http.StatusOK, out)
}

// GetSchema answers get_schema.
func (h *Handler) GetSchema(w http.ResponseWriter, r *http.Request, database openapi.DatabasePath, table openapi.TablePath, schemaID int64) {
	vs, err := h.schemas(r, database, table)
	if err != nil {
		h.problem(w, r, err)
		return
	}
	for _, v := range vs {
		if int64(v.ID) == schemaID {
			h.answer(w, http.StatusOK, openapi.TableSchema{SchemaID: schemaID, Columns: columnAnswers(v.Columns)})
			return
		}
	}
	h.problem(w, r, errs.New(errs.RouteNotFound, "table %s.%s has no schema %d; it has 1 to %d", database, table, schemaID, vs[len(vs)-1].ID))
}

func (h *Handler) schemas(r *http.Request, database, table string) ([]*millrace.Schema, error) {
	t, err := h.table(r, database, table)
	if err != nil {
		return nil, err
	}
	return h.o.Catalog.Schemas(r.Context(), t.ID)
}

// GetInfo answers get_info.
func (h *Handler) GetInfo(w http.ResponseWriter, _ *http.Request) {
	id := h.o.Catalog.ClusterID()
	h.answer(w, http.StatusOK, openapi.Info{
		Version: h.o.Version, ClusterID: hex.EncodeToString(id[:]), FlightAddress: h.o.FlightAddress, LakeLocation: h.o.LakeLocation, IcebergAddress: h.o.IcebergAddress, Authentication: h.o.Authentication, Features: []string{},
		Limits: openapi.Limits{
			JSONBodyBytes: maxJSONBytes, JSONBodyRows: maxJSONRows, NdjsonLineBytes: 1 << 20, ArrowMessageBytes: 64 << 20,
			ChunkRows: chunkRows, ChunkBytes: chunkBytes, LookupKeys: router.MaxLookupKeys,
			RowBytes: router.MaxRowBytes, KeyBytes: router.MaxKeyBytes, Columns: catalog.MaxColumns, Nesting: millrace.MaxTypeNesting,
			Buckets: millrace.MaxBuckets, Partitions: millrace.MaxPartitions, FilterBytes: filter.MaxTextBytes, FilterDepth: filter.MaxDepth, FilterInValues: filter.MaxInList,
			PageRows: router.MaxPageSize, CursorBytes: 16 << 10, StreamBuckets: router.MaxMergedBuckets, ErrorEntries: errs.MaxFieldErrors,
			UnacknowledgedBatches: 64, TimeoutDefaultMs: defaultTimeout.Milliseconds(), TimeoutMaxMs: maxTimeout.Milliseconds(),
			IdempotencyKeyTTLMs: 24 * 3600 * 1000,
		},
	})
}
