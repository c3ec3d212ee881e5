package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

// report is the JSON of a run.
type report struct {
	Began    time.Time         `json:"began"`
	Seconds  float64           `json:"seconds"`
	Machine  machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Options  *options          `json:"options"`
	Sizes    sizes             `json:"sizes"`
	Notes    []string          `json:"notes,omitempty"`
	Results  []*result         `json:"results"`
}

type machine struct {
	CPU     string `json:"cpu"`
	Cores   int    `json:"cores"`
	MemMiB  uint64 `json:"mem_mib"`
	Kernel  string `json:"kernel"`
	DiskDev string `json:"disk"`
}

// report writes the results as JSON and as a table, and the table for the person.
func (b *bench) report(ctx context.Context, stdout io.Writer) error {
	r := &report{
		Began: b.began, Seconds: time.Since(b.began).Seconds(), Machine: b.describeMachine(ctx), Versions: b.versions,
		Options: b.o, Sizes: b.size, Notes: b.notes, Results: b.results,
	}
	text := r.markdown()
	fmt.Fprint(stdout, text)
	if b.o.Results == "" {
		return nil
	}
	if err := os.MkdirAll(b.o.Results, 0o755); err != nil {
		return err
	}
	j, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	name := filepath.Join(b.o.Results, b.began.UTC().Format("2006-01-02T1504"))
	if err := os.WriteFile(name+".json", append(j, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(name+".md", []byte(text), 0o644)
}

func (r *report) markdown() string {
	var s strings.Builder
	m := r.Machine
	fmt.Fprintf(&s, "# Benchmarks of %s\n\n", r.Began.UTC().Format("2 January 2006, 15:04 UTC"))
	fmt.Fprintf(&s, "%s, %d cores, %d MiB, Linux %s, data on %s. ", m.CPU, m.Cores, m.MemMiB, m.Kernel, m.DiskDev)
	var v []string
	for _, k := range []string{"millrace", "go", "arrow-go", "grpc", "pebble", "redis"} {
		if r.Versions[k] != "" {
			v = append(v, k+" "+r.Versions[k])
		}
	}
	fmt.Fprintf(&s, "%s. %d pairs, sizes %+v, %.0f s in all.\n\n", strings.Join(v, ", "), r.Options.Pairs, r.Sizes, r.Seconds)
	s.WriteString("| # | what | yardstick | figure | ours | yardstick's | ratio (range) | target | busy runs |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, x := range r.Results {
		yard, ratio := "–", "–"
		if x.Yard != 0 {
			yard, ratio = short(x.Yard), fmt.Sprintf("**%.3f** (%s)", x.Ratio, spread(x.Ratios))
		}
		fmt.Fprintf(&s, "| %s | %s | %s | %s, %s | %s | %s | %s | %s | %d of %d |\n", x.ID, x.What, or(x.Yardstick, "–"), x.Metric, x.Unit, short(x.Ours), yard, ratio, x.verdict(), x.Busy, x.Runs)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&s, "\n%s.\n", n)
	}
	return s.String()
}

func (r *result) verdict() string {
	if r.Target == 0 {
		return "–"
	}
	sign, met := "≥", "met"
	if r.AtMost {
		sign = "≤"
	}
	if !r.Met {
		met = "missed"
	}
	return fmt.Sprintf("%s %s, %s", sign, short(r.Target), met)
}

// short is a number with three digits that matter.
func short(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func (b *bench) describeMachine(ctx context.Context) machine {
	m := machine{CPU: "unknown CPU", Cores: runtime.NumCPU(), Kernel: output(ctx, "uname", "-r")}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, ok := strings.Cut(string(info), "model name"); ok {
			line, _, _ := strings.Cut(rest, "\n")
			m.CPU = strings.Trim(line, "\t :")
		}
	}
	var si syscall.Sysinfo_t
	if syscall.Sysinfo(&si) == nil {
		m.MemMiB = si.Totalram * uint64(si.Unit) >> 20
	}
	// The second line is the file system's, its first field the device.
	if _, line, ok := strings.Cut(output(ctx, "df", "--output=source,fstype", b.o.Dir), "\n"); ok {
		m.DiskDev = strings.Join(strings.Fields(line), " ")
	}
	return m
}

func versions(ctx context.Context) map[string]string {
	v := map[string]string{"go": runtime.Version(), "millrace": output(ctx, "git", "describe", "--always", "--dirty")}
	names := map[string]string{"github.com/apache/arrow-go/v18": "arrow-go", "google.golang.org/grpc": "grpc", "github.com/cockroachdb/pebble/v2": "pebble"}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if n := names[d.Path]; n != "" {
				v[n] = d.Version
			}
		}
	}
	if redis := strings.Fields(output(ctx, "redis-server", "--version")); len(redis) > 2 {
		v["redis"] = strings.TrimPrefix(redis[2], "v=")
	}
	return v
}

// output is what a program says; "" where there is no such program.
func output(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
