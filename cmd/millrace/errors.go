package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/millrace/millrace/errs"
)

// Exit codes.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitNotFound = 3
)

// usageError is a mistake in the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func (e usageError) Unwrap() error { return e.error }

// advised is an error with a line on what to do about it.
type advised struct {
	error
	advice string
}

func (e *advised) Unwrap() error { return e.error }

// fieldLines is how many rows and fields at fault are printed.
const fieldLines = 10

// finish prints what went wrong, if anything did, and says with which code to exit.
func (a *app) finish(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	if interrupted(ctx) && errors.Is(err, context.Canceled) {
		fmt.Fprintln(a.stderr, "millrace: interrupted")
		return exitFailed
	}
	if _, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintf(a.stderr, "millrace: %s\n", printable(err.Error()))
		return exitUsage
	}
	printError(a.stderr, err)
	switch errs.CodeOf(err) {
	case errs.DatabaseNotFound, errs.TableNotFound, errs.PartitionNotFound, errs.RowNotFound:
		return exitNotFound
	default:
		return exitFailed
	}
}

// printError writes one line with message, code and what to do, and a line for
// each of the first rows and fields at fault.
func printError(w io.Writer, err error) {
	a, hasAdvice := errors.AsType[*advised](err)
	if hasAdvice {
		defer fmt.Fprintf(w, "  %s\n", printable(a.advice))
	}
	e, ok := errors.AsType[*errs.Error](err)
	if !ok {
		fmt.Fprintf(w, "millrace: %s\n", printable(err.Error()))
		return
	}
	line := fmt.Sprintf("millrace: %s (%s)", strings.TrimSuffix(err.Error(), "."), e.Code)
	if hint := hintFor(e); hint != "" && !hasAdvice {
		line += ": " + hint
	}
	fmt.Fprintln(w, printable(line))
	if len(e.Fields) < 2 && strings.Contains(err.Error(), firstMessage(e.Fields)) {
		return // the message has it
	}
	for i, f := range e.Fields {
		if i == fieldLines {
			fmt.Fprintf(w, "  and %d more\n", len(e.Fields)-i)
			break
		}
		fmt.Fprintf(w, "  %s\n", printable(fieldText(f)))
	}
}

func firstMessage(fields []errs.FieldError) string {
	if len(fields) == 0 {
		return ""
	}
	return fields[0].Message
}

func fieldText(f errs.FieldError) string {
	var where []string
	if f.Index != nil {
		where = append(where, fmt.Sprintf("row %d", *f.Index))
	}
	if f.Field != "" {
		where = append(where, fmt.Sprintf("field %q", f.Field))
	}
	if len(where) == 0 {
		return fmt.Sprintf("%s (%s)", f.Message, f.Code)
	}
	return fmt.Sprintf("%s: %s (%s)", strings.Join(where, ", "), f.Message, f.Code)
}

// hints say what to do about an error, where the message cannot know it.
var hints = map[errs.Code]string{
	errs.Unauthenticated:       "set MILLRACE_TOKEN to a valid token",
	errs.PermissionDenied:      "ask for a grant",
	errs.ColumnDenied:          "name the columns that you may read with --columns",
	errs.DatabaseNotFound:      "see millrace db list",
	errs.TableNotFound:         "see millrace table list DATABASE",
	errs.RouteNotFound:         "is this a Millrace server, and of this release?",
	errs.DatabaseNotEmpty:      "drop its tables first, or use --cascade",
	errs.SnapshotGone:          "run the command again",
	errs.OffsetOutOfRange:      "see millrace offsets DB.T, or start from earliest",
	errs.UnknownColumn:         "see millrace table describe DB.T",
	errs.WrongTableKind:        "see millrace table describe DB.T for its kind",
	errs.Overloaded:            "try again in a while",
	errs.QuotaExceeded:         "try again in a while",
	errs.StorageFull:           "free space on the server",
	errs.Draining:              "try again when the server is back",
	errs.UnknownOutcome:        "see what is there before writing again",
	errs.CorruptData:           "see millrace status",
	errs.TimestampInFuture:     "check the time and its zone",
	errs.DatabaseAlreadyExists: "use --if-not-exists to accept that",
	errs.TableAlreadyExists:    "use --if-not-exists to accept that",
}

func hintFor(e *errs.Error) string {
	switch e.Code {
	case errs.Internal:
		if id, ok := e.Extra["request_id"].(string); ok {
			return "report it with request id " + id
		}
		return ""
	case errs.Unavailable:
		if strings.HasPrefix(e.Message, "cannot reach") {
			return "is the server running there? See --server and MILLRACE_SERVER"
		}
		if strings.HasPrefix(e.Message, "cannot trust") {
			return "see --server, and --ca or MILLRACE_CA for the file of its authority"
		}
		return "try again in a while"
	default:
		return hints[e.Code]
	}
}
