package server

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/tier"
)

// EnvFailpoint names a moment at which a server fails, for tests of what a crash leaves:
// "tier.before-commit:kill" ends the process there as kill -9 does, "tier.read:fail:3" is
// an error the third time. It is no setting: nothing that a server should ever run with.
const EnvFailpoint = "MILLRACE_FAILPOINT"

const tierPrefix = "tier."

// failpoint makes the hook of what EnvFailpoint says; nil when it says nothing.
func failpoint(text string) (func(tier.Step) error, error) {
	if text == "" {
		return nil, nil
	}
	name, action, _ := strings.Cut(text, ":")
	action, nth, counted := strings.Cut(action, ":")
	step, ok := strings.CutPrefix(name, tierPrefix)
	at, err := int64(1), error(nil)
	if counted {
		at, err = strconv.ParseInt(nth, 10, 64)
	}
	if !ok || !slices.Contains(tier.Steps, tier.Step(step)) || action != "kill" && action != "fail" || err != nil {
		return nil, errs.New(errs.InvalidValue, "%s is %q, not of the form tier.<step>:kill or tier.<step>:fail, with :n for the n-th time; the steps are %v", EnvFailpoint, text, tier.Steps)
	}
	var seen atomic.Int64
	return func(s tier.Step) error {
		if s != tier.Step(step) || seen.Add(1) != at {
			return nil
		}
		if action == "kill" {
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Kill()
			}
			if err == nil {
				select {} // what comes next must not happen
			}
			return err
		}
		return errs.New(errs.Unavailable, "failpoint %s", text)
	}, nil
}
