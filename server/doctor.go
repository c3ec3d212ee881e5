package server

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace/openapi"
)

// DoctorOptions say what is looked at.
type DoctorOptions struct {
	Settings *Settings
	// Config is the file that some of them come from, "" for none, and Origins is where each
	// comes from.
	Config  string
	Origins Origins
	// Token is shown to the running server; "": none.
	Token string
	// Version is that of the program which looks.
	Version string
	// Clock is ours, which those of others are compared with; nil is the machine's.
	Clock func() time.Time
}

// FindingState is how good what was found is.
type FindingState string

// States of findings.
const (
	FindingOK      FindingState = "ok"
	FindingWarning FindingState = "warning" // works, and may not for ever, or not as well as it could
	FindingFailed  FindingState = "failed"
	FindingSkipped FindingState = "skipped" // could not be looked at from here
)

// Finding is what is so, and what to do about it where it is not well.
type Finding struct {
	Subject string       `json:"subject"`
	State   FindingState `json:"state"`
	Found   string       `json:"found"`
	Advice  string       `json:"advice,omitempty"`
}

// doctor looks at everything that a server needs, one after the other.
type doctor struct {
	o        DoctorOptions
	s        *Settings
	now      func() time.Time
	log      *slog.Logger // of parts that log; nobody reads it
	dir      string
	running  *runningServer // nil: none
	found    []Finding
	clocks   []otherClock
	clusters []clusterSeen
	members  *openapi.Cluster // as the running server tells; nil: it does not
}

// clusterSeen is a place that belongs to a cluster.
type clusterSeen struct{ where, id string }

// Doctor looks at settings and surroundings of a server, whether one runs or not, and gives
// what is done to every finding. What it writes are scratch files and objects, which it
// removes.
func Doctor(ctx context.Context, o DoctorOptions) []Finding {
	d := &doctor{o: o, s: o.Settings, now: o.Clock, log: slog.New(slog.DiscardHandler)}
	if d.now == nil {
		d.now = time.Now
	}
	dir, err := filepath.Abs(d.s.DataDir)
	if err != nil {
		d.failed("data directory", "name it by its whole path", "%v", err)
		return d.found
	}
	d.dir = dir
	for _, look := range []func(context.Context){
		d.lookAtSettings, d.lookAtDataDir, d.lookAtDisk, d.lookAtSecrets, d.lookAtAudit, d.lookAtRunning, d.lookAtPorts, d.lookAtFiles,
		d.lookAtTLS, d.lookAtKeys, d.lookAtNATS, d.lookAtStores, d.lookAtHealth, d.lookAtMembers, d.lookAtClusters, d.lookAtClocks,
	} {
		if ctx.Err() != nil {
			break
		}
		look(ctx)
	}
	return d.found
}

func (d *doctor) add(subject string, state FindingState, advice, format string, args ...any) {
	d.found = append(d.found, Finding{subject, state, fmt.Sprintf(format, args...), advice})
}

func (d *doctor) ok(subject, format string, args ...any) {
	d.add(subject, FindingOK, "", format, args...)
}

func (d *doctor) warn(subject, advice, format string, args ...any) {
	d.add(subject, FindingWarning, advice, format, args...)
}

func (d *doctor) failed(subject, advice, format string, args ...any) {
	d.add(subject, FindingFailed, advice, format, args...)
}

func (d *doctor) skipped(subject, advice, format string, args ...any) {
	d.add(subject, FindingSkipped, advice, format, args...)
}

func (d *doctor) lookAtSettings(context.Context) {
	const subject = "settings"
	loose := d.s.unsafe()
	for _, name := range loose {
		u := unsafeSettings[name]
		d.warn(subject, u.advice, "%s: %s", name, u.why)
	}
	if len(loose) == 0 {
		mode := "a single node"
		if d.s.clustered() {
			mode = fmt.Sprintf("a process of cluster %s with the roles %s", d.s.ClusterName, strings.Join(d.s.Roles, ", "))
		}
		d.ok(subject, "they are those of %s, and safe", mode)
	}
	if d.s.DataDir != d.dir && d.s.clustered() {
		d.warn(subject, "name it by its whole path", "data-dir %s is another folder for who starts the server elsewhere", d.s.DataDir)
	}
}
