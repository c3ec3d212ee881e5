package main

import (
	"strings"

	"github.com/alecthomas/kong"

	"github.com/millrace/millrace/errs"
)

// laterCmd is a command of a release to come: it is in the help, and says so when
// it is called, whatever its arguments.
type laterCmd struct {
	Args []string `arg:"" optional:"" passthrough:"" hidden:""`
}

// Run implements the command.
func (c *laterCmd) Run(k *kong.Context) error {
	return errs.New(errs.NotImplemented, "%s is not in this release yet", strings.TrimPrefix(k.Selected().FullPath(), "millrace "))
}
