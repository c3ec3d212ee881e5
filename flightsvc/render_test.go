package flightsvc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/admit"
	"github.com/millrace/millrace/errs"
)

// Every code is rendered with its gRPC code, as the reason of an ErrorInfo, and
// with the time to wait where there is one; the text begins with it.
func TestEveryCodeIsRendered(t *testing.T) {
	s := New(Options{Room: admit.New(admit.Received, 1, time.Now, prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	for _, k := range errs.Kinds() {
		err := s.render(t.Context(), &call{requestID: "r1"}, fmt.Errorf("layer: %w", errs.New(k.Code, "the message")))
		st, ok := status.FromError(err)
		require.True(t, ok)
		require.Equal(t, codes.Code(k.GRPC), st.Code(), k.Code)
		require.True(t, strings.HasPrefix(st.Message(), string(k.Code)+": "), st.Message())
		require.Equal(t, k.Code == errs.Internal, !strings.Contains(st.Message(), "the message"))
		info, ok := st.Details()[0].(*errdetails.ErrorInfo)
		require.True(t, ok)
		require.Equal(t, string(k.Code), info.Reason)
		require.Equal(t, "r1", info.Metadata["request_id"])
		require.Equal(t, k.RetryAfterSeconds > 0, len(st.Details()) == 2, k.Code)
		if len(st.Details()) == 2 {
			retry, ok := st.Details()[1].(*errdetails.RetryInfo)
			require.True(t, ok)
			require.EqualValues(t, k.RetryAfterSeconds, retry.RetryDelay.Seconds)
		}
	}
}

// However long an error is, its status fits into the 8 KiB of trailers that gRPC's
// C core takes, message and details together.
func TestStatusFitsTheTrailers(t *testing.T) {
	s := New(Options{Room: admit.New(admit.Received, 1, time.Now, prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	e := errs.New(errs.InvalidValue, "%s", strings.Repeat("ü", 10_000)).With("offsets", strings.Repeat("y", 10_000)).With("small", 1)
	for i := range int64(100) {
		e.Fields = append(e.Fields, errs.FieldError{Index: &i, Field: "f", Code: errs.InvalidValue, Message: strings.Repeat("z", 500)})
	}
	st, ok := status.FromError(s.render(t.Context(), &call{requestID: "r1"}, e))
	require.True(t, ok)
	require.Less(t, 3*len(st.Message())+4*proto.Size(st.Proto())/3, 8<<10)
	require.Equal(t, "1", st.Details()[0].(*errdetails.ErrorInfo).Metadata["small"])
}

// Rows at fault are all named, the first by the message; what a call was ended for
// counts more than what it says itself.
func TestRenderedTexts(t *testing.T) {
	s := New(Options{Room: admit.New(admit.Received, 1, time.Now, prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	e := errs.Row(errs.TypeMismatch, 3, "a", "not a number")
	seven := int64(7)
	e.Fields = append(e.Fields, errs.FieldError{Index: &seven, Field: "b", Code: errs.NullNotAllowed, Message: "NULL"})
	err := s.render(t.Context(), &call{}, e)
	require.Equal(t, `type_mismatch: row 3, field "a": not a number; row 7, field "b": NULL (null_not_allowed)`, status.Convert(err).Message())

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errDraining)
	require.Equal(t, codes.Unavailable, status.Code(s.render(ctx, &call{}, context.Canceled)))
	require.Equal(t, codes.Canceled, status.Code(s.render(t.Context(), &call{}, context.Canceled)))
	require.Equal(t, codes.DataLoss, status.Code(s.render(t.Context(), &call{}, status.Error(codes.DataLoss, "of the transport"))))
	require.Equal(t, codes.Internal, status.Code(s.render(t.Context(), &call{}, errors.New("disk on fire"))))
	require.NoError(t, s.render(t.Context(), &call{}, nil))
}
