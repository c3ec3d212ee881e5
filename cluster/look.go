package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/errs"
)

// Seen is what can be seen of the servers over a connection, for people.
type Seen struct {
	// Server, Version and Cluster are names of the server that answers; Cluster is "" when
	// it is by itself.
	Server, Version, Cluster string
	// RoundTrip is how long it takes to answer.
	RoundTrip time.Duration
	// Clocks are those of the servers that tell the time.
	Clocks []ServerClock
	// Streams are those of the clusters of ours that share the account.
	Streams []StreamSeen
}

// ServerClock is what a server's clock says, at a moment of ours that is right within Unsure.
type ServerClock struct {
	Server  string
	At, Now time.Time
	Unsure  time.Duration
}

// StreamSeen is a stream, and its replicas that are away or behind.
type StreamSeen struct {
	Name     string
	Leader   string // "": none
	Replicas int
	Away     []string
	Bytes    int64
	MaxBytes int64
}

// maxStreams bounds how many streams are looked at.
const maxStreams = 10_000

// Look tells what there is, and changes nothing. What it was given before an error is good.
func (c *Conn) Look(ctx context.Context, d Demands, now func() time.Time) (Seen, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	s := Seen{Server: c.nc.ConnectedServerName(), Version: c.nc.ConnectedServerVersion(), Cluster: c.nc.ConnectedClusterName()}
	var err error
	if s.RoundTrip, err = c.nc.RTT(); err != nil {
		return s, errs.New(errs.Unavailable, "NATS does not answer: %v", err)
	}
	if d.SystemURLs != "" || d.SystemCredentials != "" {
		servers, err := c.serverSettings(ctx, d, now)
		if err != nil {
			return s, err
		}
		for _, v := range servers {
			s.Clocks = append(s.Clocks, ServerClock{Server: v.Server.Name, At: v.at, Now: v.Server.Time, Unsure: v.waited})
		}
	}
	return s, c.lookAtStreams(ctx, &s, now)
}

// lookAtStreams lists our streams; where nobody told the time yet, one of them does.
func (c *Conn) lookAtStreams(ctx context.Context, s *Seen, now func() time.Time) error {
	list := c.js.ListStreams(ctx)
	for info := range list.Info() {
		if !strings.HasPrefix(info.Config.Name, "mr_") && !strings.HasPrefix(info.Config.Name, "KV_mr_") || len(s.Streams) == maxStreams {
			continue
		}
		st := StreamSeen{
			Name: info.Config.Name, Replicas: info.Config.Replicas, Bytes: int64(min(info.State.Bytes, 1<<62)), MaxBytes: info.Config.MaxBytes,
			Leader: s.Server,
		}
		if g := info.Cluster; g != nil {
			st.Leader = g.Leader
			for _, r := range g.Replicas {
				if r.Offline || !r.Current {
					st.Away = append(st.Away, fmt.Sprintf("%s (%s)", r.Name, standing(r)))
				}
			}
		}
		s.Streams = append(s.Streams, st)
	}
	if err := list.Err(); err != nil {
		return errs.New(errs.Unavailable, "listing the streams of NATS: %v", err)
	}
	if len(s.Clocks) > 0 || len(s.Streams) == 0 {
		return nil
	}
	before := now()
	st, err := c.js.Stream(ctx, s.Streams[0].Name)
	if err != nil {
		return errs.New(errs.Unavailable, "asking NATS for stream %s: %v", s.Streams[0].Name, err)
	}
	after := now()
	if at := st.CachedInfo().TimeStamp; !at.IsZero() {
		half := after.Sub(before) / 2
		s.Clocks = append(s.Clocks, ServerClock{Server: s.Streams[0].Leader, At: before.Add(half), Now: at, Unsure: half})
	}
	return nil
}

func standing(r *jetstream.PeerInfo) string {
	if r.Offline {
		return "offline"
	}
	return fmt.Sprintf("%d behind", r.Lag)
}
