package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by the linker (see the Makefile); empty in a binary that was built otherwise.
var buildVersion, buildCommit, buildDate string

// build is which program this is.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"commit_date,omitempty"`
	Go      string `json:"go"`
	System  string `json:"system"`
}

// thisBuild is what the linker was told, or else what the go command found out.
func thisBuild() build {
	b := build{Version: buildVersion, Commit: buildCommit, Date: buildDate, Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		b.Version = cmp.Or(b.Version, "unknown")
		return b
	}
	b.Version = cmp.Or(b.Version, info.Main.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = cmp.Or(b.Commit, s.Value)
		case "vcs.time":
			b.Date = cmp.Or(b.Date, s.Value)
		}
	}
	return b
}

// version is the short form, for logs and /v1/info.
func version() string { return thisBuild().Version }

// versionCmd says which program this is.
type versionCmd struct {
	Format string `help:"How: ${enum}." enum:"text,json" default:"text"`
}

// Run implements the command.
func (c *versionCmd) Run(a *app) error {
	b := thisBuild()
	if c.Format == "json" {
		return json.NewEncoder(a.stdout).Encode(b)
	}
	_, err := fmt.Fprintf(a.stdout, "millrace %s\ncommit %s of %s\n%s %s\n", b.Version, cmp.Or(b.Commit, "unknown"), cmp.Or(b.Date, "unknown"), b.Go, b.System)
	return err
}
