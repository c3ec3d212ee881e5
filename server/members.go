package server

import (
	"time"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/rest"
)

// members are the processes of the service, as this one sees them now.
func (s *Server) members() rest.Members {
	if s.member == nil {
		return s.alone()
	}
	out := rest.Members{Mode: openapi.ClusterModeCluster, Workers: []openapi.Worker{}}
	m := s.member.manager.Load()
	if m == nil { // it has not joined yet
		return out
	}
	v := m.View()
	for _, w := range v.Workers {
		started, seen := time.UnixMicro(w.StartedMicros).UTC(), w.Age.Milliseconds()
		p := openapi.Worker{
			ID: w.Worker, Address: w.HTTP, FlightAddress: w.Flight, Version: w.Version, State: openapi.WorkerStateReady, Shards: w.Leads,
			FeatureLevel: w.FeatureLevel, SeenMs: seen, StartedAt: started,
		}
		if w.Draining {
			p.State = openapi.WorkerStateDraining
		}
		for _, r := range w.Roles {
			p.Roles = append(p.Roles, openapi.WorkerRoles(r))
		}
		out.Workers = append(out.Workers, p)
	}
	for _, sh := range v.Shards {
		out.Shards = append(out.Shards, openapi.Shard{
			Shard: int(sh.Shard), Owner: sh.Owner, Epoch: int64(sh.Epoch), MovingTo: sh.Moving,
			Standby: sh.Standby, StandbyLag: int64(sh.Behind), StandbyReady: sh.Ready,
		})
	}
	return out
}

// oldest is the process with the lowest feature level, and that level; before this process
// is a member it is this one.
func (s *Server) oldest() (process string, level catalog.FeatureLevel) {
	process, level = s.member.name, catalog.FeatureNewest
	if m := s.member.manager.Load(); m != nil {
		for _, w := range m.View().Workers {
			if l := catalog.FeatureLevel(w.FeatureLevel); l < level {
				process, level = w.Worker, l
			}
		}
	}
	return process, level
}

// alone is a single node as its own member.
func (s *Server) alone() rest.Members {
	out := rest.Members{Mode: openapi.ClusterModeSingle}
	for _, sh := range s.worker.Shards() {
		out.Shards = append(out.Shards, openapi.Shard{Shard: int(sh.Status().ID), Owner: ownerName})
	}
	out.Workers = []openapi.Worker{{ID: ownerName, Version: s.version, State: openapi.WorkerStateReady, Shards: len(out.Shards)}}
	return out
}
