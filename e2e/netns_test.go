package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// mainland is where all runs that is not on an island.
const mainland = "10.77.0.1"

// inNetwork runs a test in a network namespace of its own, in which it may lay cables and cut them: the test's binary is
// started again in it, as root or in a user namespace. It says whether this is that process.
func inNetwork(t *testing.T) bool {
	t.Helper()
	if os.Getenv("E2E_IN_NETNS") == t.Name() {
		sh(t, "ip", "link", "set", "lo", "up")
		sh(t, "ip", "link", "add", "sea", "type", "bridge")
		sh(t, "ip", "addr", "add", mainland+"/24", "dev", "sea")
		sh(t, "ip", "link", "set", "sea", "up")
		return true
	}
	if os.Getenv("E2E_NO_NETNS") != "" {
		t.Skip("E2E_NO_NETNS says that no networks can be made here")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run", "^"+t.Name()+"$", "-test.v", "-test.count", "1", "-test.timeout", "60m")
	cmd.Env = append(os.Environ(), "E2E_IN_NETNS="+t.Name(), "E2E_MILLRACE="+binaryPath)
	cmd.SysProcAttr = inOwn(syscall.CLONE_NEWNET, syscall.CLONE_NEWUSER)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	// The thread that starts it has to live as long, or the kernel takes the death of its parent for true.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	t.Logf("in a network of its own:\n%s", &out)
	require.NoError(t, err, "the test in a network of its own; where none can be made, E2E_NO_NETNS=1 leaves it out")
	return false
}

// inOwn are attributes of a process in namespaces of its own, which dies with the test. Who is not root needs a user
// namespace for them.
func inOwn(flags, forUsers uintptr) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		attr.Cloneflags |= forUsers
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	return attr
}

func sh(t testing.TB, words ...string) {
	t.Helper()
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	require.NoError(t, err, "%s: %s", strings.Join(words, " "), out)
}

// island is a network with an address of its own, by one cable on the sea.
type island struct {
	address string
	cable   string
	holder  int // a process that does nothing but be there
}

var islands []*island

func newIsland(t testing.TB) *island {
	t.Helper()
	n := len(islands) + 1
	i := &island{address: fmt.Sprintf("10.77.0.%d", 10+n), cable: fmt.Sprintf("cable%d", n)}
	islands = append(islands, i)
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = inOwn(syscall.CLONE_NEWNET, 0)
	started := make(chan error)
	ended := make(chan struct{})
	go func() { // on one thread, as above
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- cmd.Start()
		if cmd.Process != nil {
			_ = cmd.Wait() // it is killed
		}
		close(ended)
	}()
	require.NoError(t, <-started)
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	i.holder = cmd.Process.Pid
	sh(t, "ip", "link", "add", i.cable, "type", "veth", "peer", "name", "eth", "netns", fmt.Sprint(i.holder))
	sh(t, "ip", "link", "set", i.cable, "master", "sea", "up")
	sh(t, i.there("ip", "addr", "add", i.address+"/24", "dev", "eth")...)
	sh(t, i.there("ip", "link", "set", "lo", "up")...)
	sh(t, i.there("ip", "link", "set", "eth", "up")...)
	return i
}

// there is a command that runs on the island.
func (i *island) there(words ...string) []string {
	return append([]string{"nsenter", "-t", fmt.Sprint(i.holder), "-n"}, words...)
}

// Ways of cutting an island off. What is sent is lost without a word, as it is when a switch or a firewall fails.
const (
	bothWays = "both ways"
	outward  = "what it sends"
	inward   = "what is sent to it"
)

// nobody is the address of no card: frames to it are carried, and nobody takes them.
const nobody = "02:00:00:00:00:99"

// cut cuts the island off from everything, until join.
func (i *island) cut(t testing.TB, way string) {
	t.Helper()
	if way == bothWays {
		sh(t, "ip", "link", "set", i.cable, "nomaster")
		return
	}
	i.neighbours(way, func(in []string, address, card string) {
		sh(t, append(in, "ip", "neigh", "replace", address, "lladdr", nobody, "dev", card, "nud", "permanent")...)
	})
}

// join ends a cut.
func (i *island) join(t testing.TB, way string) {
	t.Helper()
	if way == bothWays {
		sh(t, "ip", "link", "set", i.cable, "master", "sea")
		return
	}
	i.neighbours(way, func(in []string, address, card string) {
		sh(t, append(in, "ip", "neigh", "del", address, "dev", card)...)
	})
}

// neighbours calls for each way from the island to another place, or from there to it: where a command runs that
// changes it, to whose address it leads and by which card.
func (i *island) neighbours(way string, each func(in []string, address, card string)) {
	if way == outward {
		each(i.there(), mainland, "eth")
	} else {
		each(nil, i.address, "sea")
	}
	for _, other := range islands {
		switch {
		case other == i:
		case way == outward:
			each(i.there(), other.address, "eth")
		default:
			each(other.there(), i.address, "eth")
		}
	}
}

// visit does something on the island. What is opened there stays there.
func (i *island) visit(do func()) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	there, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", i.holder))
	if err != nil {
		return err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	do()
	return unix.Setns(int(home.Fd()), unix.CLONE_NEWNET)
}

// client is a client on the island.
func (i *island) client(timeout time.Duration) *http.Client {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		type dialed struct {
			conn net.Conn
			err  error
		}
		done := make(chan dialed, 1)
		go func() {
			var d dialed
			if err := i.visit(func() { d.conn, d.err = (&net.Dialer{}).DialContext(ctx, network, address) }); err != nil {
				d.err = err
			}
			done <- d
		}()
		d := <-done
		return d.conn, d.err
	}
	return &http.Client{Timeout: timeout, Transport: &http.Transport{DialContext: dial, DisableCompression: true}}
}

// runUnder makes a command run under another.
func runUnder(cmd *exec.Cmd, words []string) error {
	path, err := exec.LookPath(words[0])
	if err != nil {
		return err
	}
	cmd.Path, cmd.Args = path, append(slices.Clone(words), cmd.Args...)
	return nil
}
