package rest

import (
	"encoding/hex"
	"net/http"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/storage/shard"
)

// Members are the processes of the service, and what each has.
type Members struct {
	Mode    openapi.ClusterMode
	Workers []openapi.Worker
	Shards  []openapi.Shard // by shard, what is known of them without asking their owners
}

// owner is who owns a shard; "" when nobody does.
func (m *Members) owner(id millrace.ShardID) string {
	if int(id) >= len(m.Shards) {
		return ""
	}
	return m.Shards[id].Owner
}

// GetCluster answers get_cluster.
func (h *Handler) GetCluster(w http.ResponseWriter, r *http.Request) {
	id := h.o.Catalog.ClusterID()
	m := h.o.Members()
	out := openapi.Cluster{ClusterID: hex.EncodeToString(id[:]), Mode: m.Mode, Workers: m.Workers, Shards: []openapi.Shard{}}
	damaged := map[string]bool{}
	for i, st := range h.o.Router.Shards(r.Context()) {
		sh := openapi.Shard{Shard: i}
		if i < len(m.Shards) {
			sh = m.Shards[i]
		}
		tell(&sh, st)
		damaged[sh.Owner] = damaged[sh.Owner] || sh.State == openapi.ShardStateDamaged
		out.Shards = append(out.Shards, sh)
	}
	for i := range out.Workers {
		if damaged[out.Workers[i].ID] {
			out.Workers[i].State = openapi.WorkerStateFailed
		}
	}
	out.LakePurges = h.purgesAnswer()
	h.answer(w, http.StatusOK, out)
}

// tell says how a shard stands, as its owner does.
func tell(sh *openapi.Shard, st shard.Status) {
	switch {
	case st.Err == nil:
		sh.State, sh.Epoch, sh.Lsn, sh.CheckpointLsn, sh.Buckets = openapi.ShardStateOpen, int64(st.Epoch), int64(st.LSN), int64(st.CheckpointLSN), st.Buckets
		return
	case !errs.Is(st.Err, errs.Unavailable):
		sh.State = openapi.ShardStateDamaged
	case sh.Owner == "":
		sh.State = openapi.ShardStateUnowned
	default:
		sh.State = openapi.ShardStateRecovering
	}
	sh.Detail = st.Err.Error()
}
