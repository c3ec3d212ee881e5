package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

var selfPID = os.Getpid()

// clockTicks are those of /proc/PID/stat in a second; Linux shows 100 to programs,
// whatever the kernel counts with.
const clockTicks = 100

// cpuSeconds are the user and system time that processes have used.
func cpuSeconds(pids map[string]int) (map[string]float64, error) {
	out := map[string]float64{}
	for name, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return nil, fmt.Errorf("the %s has gone: %w", name, err)
		}
		// The program's name, in parentheses, may hold blanks.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		for _, f := range fields[11:13] { // utime, stime
			ticks, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("/proc/%d/stat: %w", pid, err)
			}
			out[name] += float64(ticks) / clockTicks
		}
	}
	return out, nil
}

// cpuPressure is for how much of the last ten seconds something waited for a CPU,
// in percent; 0 where the kernel does not tell.
func cpuPressure() (float64, error) {
	b, err := os.ReadFile("/proc/pressure/cpu")
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(b), "avg10=")
	if !ok {
		return 0, fmt.Errorf("/proc/pressure/cpu has no avg10: %q", b)
	}
	return strconv.ParseFloat(strings.Fields(rest)[0], 64)
}

// child is a program that takes part, spoken to by lines.
type child struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

// startChild starts a program that ends with the harness.
func startChild(ctx context.Context, name, path string, args ...string) (*child, error) {
	c := &child{name: name, cmd: exec.CommandContext(ctx, path, args...)}
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// kill ends a program whose data nobody needs any more.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended already
	_ = c.cmd.Wait()         // it was told to end by a signal
}

// ask sends a line, if there is one, and returns the line that comes back.
func (c *child) ask(line string) (string, error) {
	if line != "" {
		if _, err := fmt.Fprintln(c.in, line); err != nil {
			return "", fmt.Errorf("%s: %w", c.name, err)
		}
	}
	answer, err := c.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s: %w", c.name, err)
	}
	return strings.TrimSpace(answer), nil
}

// stopWithin bounds an end by request: a worker of a cluster takes up to 80 s to hand over its shards.
const stopWithin = 2 * time.Minute

// stop asks a program to end and waits; one that does not is killed.
func (c *child) stop() {
	_ = c.in.Close()                          // it may have ended already
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // likewise
	timer := time.AfterFunc(stopWithin, func() { _ = c.cmd.Process.Kill() })
	_ = c.cmd.Wait() // it was told to end by a signal
	timer.Stop()
}
