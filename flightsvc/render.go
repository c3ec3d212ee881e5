package flightsvc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/trace"
)

// errorDomain is the domain of every ErrorInfo.
const errorDomain = "millrace"

// A status goes out in HTTP/2 trailers, of which gRPC's C core takes 8 KiB by
// default, and its message stands in them twice.
const (
	maxMessageBytes = 1 << 10
	maxExtraBytes   = 2 << 10
)

// render makes the gRPC status of an error (F6). ctx is the call's.
func (s *Service) render(ctx context.Context, c *call, err error) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*errs.Error](err)
	if cause := context.Cause(ctx); ctx.Err() != nil && errs.CodeOf(cause) != errs.Internal {
		// The call was ended for a reason; what it says itself follows from that.
		e, ok = errors.AsType[*errs.Error](cause)
		err = cause
	}
	if !ok {
		if st, is := status.FromError(err); is {
			return st.Err() // of the transport
		}
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return status.FromContextError(err).Err()
		}
		e = &errs.Error{Code: errs.Internal}
	}
	trace.Of(ctx).Fail(e.Code)
	text := err.Error()
	if e.Code == errs.Internal {
		s.o.Logger.LogAttrs(ctx, slog.LevelError, "flight call failed", slog.String("method", c.method), slog.Any("err", err))
		text = fmt.Sprintf("%s; the server's log says more under request id %s", errs.KindOf(errs.Internal).Title, c.requestID)
	}
	return statusOf(e, text, c.requestID)
}

// statusOf is the status of an error with a code.
func statusOf(e *errs.Error, text, requestID string) error {
	kind := errs.KindOf(e.Code)
	st := status.New(codes.Code(kind.GRPC), clipText(string(e.Code)+": "+text+fieldText(e), maxMessageBytes))
	info := &errdetails.ErrorInfo{Reason: string(e.Code), Domain: errorDomain, Metadata: map[string]string{"request_id": requestID}}
	left := maxExtraBytes
	for _, k := range slices.Sorted(maps.Keys(e.Extra)) {
		// The code and the text say enough when an extra does not fit.
		if b, err := json.Marshal(e.Extra[k]); err == nil && len(k)+len(b) <= left {
			info.Metadata[k] = string(b)
			left -= len(k) + len(b)
		}
	}
	details := []protoadapt.MessageV1{info}
	if wait := e.Wait(); wait > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(wait) * time.Second)})
	}
	with, err := st.WithDetails(details...)
	if err != nil {
		panic(err) // messages of ours always encode
	}
	return with.Err()
}

// fieldText lists the rows and fields at fault beyond the first, which the error's
// own text names.
func fieldText(e *errs.Error) string {
	var b strings.Builder
	for i, f := range e.Fields {
		if i == 0 && strings.Contains(e.Message, f.Message) {
			continue
		}
		if b.Len() > maxMessageBytes {
			break
		}
		b.WriteString("; ")
		if f.Index != nil {
			fmt.Fprintf(&b, "row %d", *f.Index)
		}
		if f.Field != "" {
			fmt.Fprintf(&b, ", field %q", f.Field)
		}
		fmt.Fprintf(&b, ": %s (%s)", f.Message, f.Code)
	}
	return b.String()
}

func clipText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

// ended says whether a receive failed because the client has sent everything.
func ended(err error) bool { return errors.Is(err, io.EOF) }
