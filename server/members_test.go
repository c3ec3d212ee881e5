package server

import (
	"testing"

	"github.com/millrace/millrace/cluster/owner"
	"github.com/millrace/millrace/openapi"
)

// A process that waits for NATS has its doors open before it has joined: it tells of no
// members then, and no work is its own.
func TestMembersBeforeJoining(t *testing.T) {
	s := &Server{member: &member{}}
	if m := s.members(); m.Mode != openapi.ClusterModeCluster || m.Workers == nil || len(m.Workers) > 0 {
		t.Errorf("members %+v", m)
	}
	if s.mine(owner.RoleTier, 1) {
		t.Error("a table is this process's before it is a member")
	}
}
