package server

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
)

// What cannot be restored, or not there, is told, and nothing is made of it.
func TestRestoreRefuses(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	place := t.TempDir()
	from := "file://" + place
	dir := filepath.Join(t.TempDir(), "data")
	settings := func(dir string) *Settings {
		s, _, err := Load(Sources{Flags: map[string]any{"data-dir": dir}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	refused := func(what, dir, from string, code errs.Code, says string) {
		t.Helper()
		_, err := Restore(t.Context(), settings(dir), from, true, log)
		if !errs.Is(err, code) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("nothing there", dir, from, errs.InvalidRequest, "cluster.json")
	refused("no address", dir, "here", errs.InvalidValue, "here")
	if _, err := os.Stat(dir); err == nil {
		t.Error("a data directory was made of nothing")
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(place, "cluster.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"format":2,"cluster_id":"07000000000000000000000000000000"}`)
	refused("newer", dir, from, errs.NotImplemented, "newer")
	write(`{"format":1,"cluster_id":"07"}`)
	refused("damaged", dir, from, errs.CorruptData, "cluster.json")
	write(`{"format":1,"cluster_id":"07000000000000000000000000000000"}`)
	refused("no catalog there", dir, from, errs.InvalidRequest, "export")

	// A server does not start on what is not whole.
	run := settings(dir)
	run.HTTPAddr, run.FlightAddr = "127.0.0.1:0", "127.0.0.1:0"
	if err := Run(t.Context(), Options{Settings: run, Log: &strings.Builder{}}); err == nil || !strings.Contains(err.Error(), "cluster") {
		t.Errorf("a server starts on half a restore: %v", err)
	}

	used := filepath.Join(t.TempDir(), "used")
	c, err := catalog.Open(context.Background(), catalog.Options{Dir: filepath.Join(used, catalogDir), FS: vfs.Default, Clock: wallClock{}.Now, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	refused("data there", used, from, errs.InvalidRequest, "empty")
}
