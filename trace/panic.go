package trace

import (
	"fmt"
	"runtime"
)

// PanicText is what a log tells of a panic, beside the stack: the message when the runtime
// made it, which is of indexes and types, and else the type of the value alone, since that may
// hold what a caller sent.
func PanicText(p any) string {
	if err, ok := p.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("a value of type %T", p)
}
