package rest

import (
	"net/http"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/openapi"
)

func quotaAnswer(q *millrace.Quota) openapi.Quota {
	return openapi.Quota{
		WriteRowsPerS: q.Limits.WriteRows, WriteBytesPerS: q.Limits.WriteBytes, ReadBytesPerS: q.Limits.ReadBytes, Streams: q.Limits.Streams,
	}
}

// ListQuotas answers list_quotas.
func (h *Handler) ListQuotas(w http.ResponseWriter, r *http.Request, p openapi.ListQuotasParams) {
	n, token, err := page(p.Limit, p.PageToken)
	if err == nil {
		err = checkQuery(r.URL.Query(), "limit", "page_token")
	}
	var a Access
	if err == nil {
		a, err = h.grants()
	}
	var qs []*millrace.Quota
	if err == nil {
		qs, token, err = a.Quotas(r.Context(), n, token)
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	out := openapi.QuotaList{Quotas: []openapi.PrincipalQuota{}, NextPageToken: token}
	for _, q := range qs {
		out.Quotas = append(out.Quotas, openapi.PrincipalQuota{
			Principal: q.Principal, WriteRowsPerS: q.Limits.WriteRows, WriteBytesPerS: q.Limits.WriteBytes,
			ReadBytesPerS: q.Limits.ReadBytes, Streams: q.Limits.Streams,
		})
	}
	h.answer(w, http.StatusOK, out)
}

// GetQuota answers get_quota.
func (h *Handler) GetQuota(w http.ResponseWriter, r *http.Request, principal string) {
	err := checkQuery(r.URL.Query())
	var a Access
	if err == nil {
		a, err = h.grants()
	}
	var q *millrace.Quota
	if err == nil {
		q, err = a.Quota(r.Context(), principal)
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	h.answer(w, http.StatusOK, quotaAnswer(q))
}

// PutQuota answers put_quota.
func (h *Handler) PutQuota(w http.ResponseWriter, r *http.Request, principal string) {
	var req openapi.Quota
	err := checkQuery(r.URL.Query())
	if err == nil {
		err = decode(w, r, &req)
	}
	var a Access
	if err == nil {
		a, err = h.grants()
	}
	var q *millrace.Quota
	if err == nil {
		q, err = a.SetQuota(r.Context(), principal, millrace.Limits{
			WriteRows: req.WriteRowsPerS, WriteBytes: req.WriteBytesPerS, ReadBytes: req.ReadBytesPerS, Streams: req.Streams,
		})
	}
	if err != nil {
		h.problem(w, r, err)
		return
	}
	h.answer(w, http.StatusOK, quotaAnswer(q))
}

// DeleteQuota answers delete_quota.
func (h *Handler) DeleteQuota(w http.ResponseWriter, r *http.Request, principal string) {
	h.takeBack(w, r, func(a Access) error { return a.DeleteQuota(r.Context(), principal) })
}
