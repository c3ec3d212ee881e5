package server

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const (
	subjectServer = "server"
	subjectPorts  = "ports"
	subjectFiles  = "open files"
)

// runningServer is the server on the data directory.
type runningServer struct {
	addressesRecord
	told bool // it has told its addresses
}

// clusterOfDir remembers whose data the directory has.
func (d *doctor) clusterOfDir() {
	path := filepath.Join(d.dir, clusterFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return // it is made at the first start
	}
	var r clusterRecord
	if err := json.Unmarshal(b, &r); err != nil {
		d.failed(subjectDir, "bring it back from a copy; it says which cluster the data is of", "%s is damaged: %v", path, err)
		return
	}
	if r.Format > clusterFormat {
		d.failed(subjectDir, "start that release", "%s has format %d: it was written by a newer release", path, r.Format)
	}
	d.clusters = append(d.clusters, clusterSeen{"the data directory", r.ClusterID})
}

// lookAtRunning finds out whether a server has the directory. It takes the lock together
// with others and for a moment; who wants it alone has it for as long as he runs.
func (d *doctor) lookAtRunning(context.Context) {
	f, err := os.Open(filepath.Join(d.dir, lockFile))
	if err != nil {
		d.ok(subjectServer, "none has run on this directory yet")
		return
	}
	defer f.Close()
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	switch {
	case err == nil:
		d.ok(subjectServer, "none runs on this directory")
		return
	case !errors.Is(err, syscall.EWOULDBLOCK):
		d.failed(subjectDir, "put it on a file system that has locks", "locking %s: %v", f.Name(), err)
		return
	}
	d.running = &runningServer{}
	b, err := os.ReadFile(filepath.Join(d.dir, addressesFile))
	if err == nil {
		err = json.Unmarshal(b, &d.running.addressesRecord)
	}
	if err != nil {
		d.warn(subjectServer, "wait, and look again; its log says what it is at", "%s has the directory, and does not say where it listens: a server that is starting, or a command that works on the directory", holder(f))
		return
	}
	d.running.told = true
}

// lookAtPorts tells whether the ports are free, or the running server's.
func (d *doctor) lookAtPorts(ctx context.Context) {
	all := d.s.addresses()
	if d.s.DebugAddr != "" {
		all = append(all, address{name: "debug-addr", value: d.s.DebugAddr})
	}
	var good []string
	for _, a := range all {
		if a.value == "" {
			continue
		}
		_, port, _ := net.SplitHostPort(a.value) // the settings were checked
		if port == "0" {
			continue // any that is free
		}
		if d.running != nil && d.running.has(port) {
			good = append(good, fmt.Sprintf("%s %s is the running server's", a.name, a.value))
			continue
		}
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", a.value)
		switch {
		case err == nil:
			_ = l.Close()
			good = append(good, fmt.Sprintf("%s %s is free", a.name, a.value))
			if d.running != nil && d.running.told {
				d.warn(subjectPorts, "look with the settings that it was started with, or start it again", "the running server does not listen on %s %s: it was started with other settings", a.name, a.value)
			}
		case errors.Is(err, syscall.EADDRINUSE) && d.running != nil && !d.running.told:
			good = append(good, fmt.Sprintf("%s %s is in use, by what is starting perhaps", a.name, a.value))
		case errors.Is(err, syscall.EADDRINUSE):
			d.failed(subjectPorts, "end that program (ss -ltnp 'sport = :"+port+"' shows it), or choose another port", "%s %s is in use by another program", a.name, a.value)
		case errors.Is(err, syscall.EACCES):
			d.failed(subjectPorts, "choose a port from 1024 up, or give the server CAP_NET_BIND_SERVICE", "%s %s may not be listened on by this user", a.name, a.value)
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			d.failed(subjectPorts, "name an address that this machine has (ip addr), or 0.0.0.0", "%s %s is no address of this machine", a.name, a.value)
		default:
			d.failed(subjectPorts, "", "%s: %v", a.name, err)
		}
	}
	if len(good) > 0 {
		d.ok(subjectPorts, "%s", strings.Join(good, "; "))
	}
}

// has says whether the server told that it listens on a port.
func (r *runningServer) has(port string) bool {
	for _, a := range []string{r.HTTP, r.Flight, r.Metrics, r.Debug} {
		if _, p, err := net.SplitHostPort(a); err == nil && p == port {
			return true
		}
	}
	return false
}

// lookAtFiles tells whether the limit of open files leaves as many connections as there
// should be: the running server's limit, or else ours.
func (d *doctor) lookAtFiles(context.Context) {
	limit, whose := ourFiles(), "this shell's"
	if d.running != nil && d.running.told {
		if n, ok := filesOf(d.running.PID); ok {
			limit, whose = n, "the running server's"
		}
	}
	most, short := connectionsWithin(d.s.MaxConnections, limit)
	if short {
		d.warn(subjectFiles, fmt.Sprintf("raise it to %d (LimitNOFILE of the systemd unit, ulimit -n)", filesForData+2*wanted(d.s.MaxConnections)),
			"the limit (%s) is %d, which leaves %d connections for each port", whose, limit, most)
		return
	}
	d.ok(subjectFiles, "the limit (%s) is %d: %d connections for each port", whose, limit, most)
}

func ourFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return limit.Cur
}

// filesOf is the limit of a process of this machine.
func filesOf(pid int) (uint64, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				n, err := strconv.ParseUint(f[0], 10, 64)
				return n, err == nil
			}
		}
	}
	return 0, false
}

// lookAtClusters compares whose data each place has.
func (d *doctor) lookAtClusters(context.Context) {
	if len(d.clusters) == 0 {
		return
	}
	const subject = "cluster"
	first := d.clusters[0]
	for _, c := range d.clusters[1:] {
		if c.id != first.id {
			d.failed(subject, "give each cluster places of its own; or bring back what belongs together", "%s is of cluster %s, and %s of cluster %s", first.where, first.id, c.where, c.id)
			return
		}
	}
	where := make([]string, len(d.clusters))
	for i, c := range d.clusters {
		where[i] = c.where
	}
	d.ok(subject, "%s: %s", first.id, strings.Join(where, ", "))
}

func clusterText(id [16]byte) string { return hex.EncodeToString(id[:]) }
