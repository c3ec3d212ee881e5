package server

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/cluster/owner"
	"github.com/millrace/millrace/cluster/owner/ownertest"
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

// What the catalog may hold goes by the oldest release that is there.
func TestOldestMember(t *testing.T) {
	keys := ownertest.NewStore()
	s := &Server{member: &member{name: "new"}}
	if name, level := s.oldest(); name != "new" || level != catalog.FeatureNewest {
		t.Errorf("before joining: %s knows %d", name, level)
	}
	for name, level := range map[string]catalog.FeatureLevel{"new": catalog.FeatureNewest, "old": catalog.FeatureTables} {
		m := owner.New(owner.Options{
			Worker: name, Info: owner.Info{FeatureLevel: int(level)}, Keys: keys.Client(), Clock: wallClock{}, Shards: func() int { return 1 },
			Random: func() string { return name }, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		})
		if err := m.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Kill)
		if name == "new" {
			s.member.manager.Store(m)
		}
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if name, level := s.oldest(); name == "old" && level == catalog.FeatureTables {
			return
		} else if time.Now().After(end) {
			t.Fatalf("%s knows %d", name, level)
		}
	}
}
