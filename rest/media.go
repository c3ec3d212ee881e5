package rest

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/semaphore"

	"github.com/millrace/millrace/errs"
)

// The media types.
const (
	typeJSON       = "application/json"
	typeMergePatch = "application/merge-patch+json"
	typeNDJSON     = "application/x-ndjson"
	typeArrow      = "application/vnd.apache.arrow.stream"
	typeSSE        = "text/event-stream"
)

// contentType is the request's media type, one of those given; without the header
// it is the first.
func contentType(r *http.Request, known ...string) (string, error) {
	h := r.Header.Get("Content-Type")
	if h == "" {
		return known[0], nil
	}
	t, _, err := mime.ParseMediaType(h)
	if err == nil && slices.Contains(known, t) {
		return t, nil
	}
	hint := ""
	if t == "application/x-www-form-urlencoded" {
		hint = " (curl sends that unless told otherwise: -H 'Content-Type: application/json')"
	}
	return "", errs.New(errs.UnsupportedMediaType, "Content-Type %q is not one of %s%s", clip(h), strings.Join(known, ", "), hint)
}

// accepts is the media type to answer with: of those offered, the one with the
// highest quality in Accept, the earlier one of equals.
func accepts(r *http.Request, offered ...string) (string, error) {
	h := strings.Join(r.Header.Values("Accept"), ",")
	if strings.TrimSpace(h) == "" {
		return offered[0], nil
	}
	best, bestQ := "", 0.0
	for _, o := range offered {
		if q := quality(h, o); q > bestQ {
			best, bestQ = o, q
		}
	}
	if best == "" {
		return "", errs.New(errs.NotAcceptable, "none of %q can be sent; this operation answers with %s", clip(h), strings.Join(offered, ", "))
	}
	return best, nil
}

// quality is what an Accept header gives a media type, by its most specific range.
func quality(accept, media string) float64 {
	major, _, _ := strings.Cut(media, "/")
	q, specific := 0.0, -1
	for part := range strings.SplitSeq(accept, ",") {
		t, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil {
			continue
		}
		s := slices.Index([]string{"*/*", major + "/*", media}, t)
		if s <= specific {
			continue
		}
		specific, q = s, 1
		if v, err := strconv.ParseFloat(params["q"], 64); err == nil {
			q = v
		}
	}
	return q
}

// body is the request's body, decompressed, for whose bytes there has to be room. The
// caller closes it.
func body(r *http.Request) (io.ReadCloser, error) {
	b, err := wholeBody(r)
	if hold := holdOf(r); err == nil && hold != nil {
		return struct {
			io.Reader
			io.Closer
		}{hold.Reader(r.Context(), b), b}, nil
	}
	return b, err
}

func wholeBody(r *http.Request) (io.ReadCloser, error) {
	enc := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding")))
	switch enc {
	case "", "identity":
		return r.Body, nil
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, errs.New(errs.InvalidRequest, "the body is not gzip: %v", err)
		}
		return &decompressed{r: z, close: z.Close}, nil
	case "zstd":
		if err := zstdBody(r.Context()); err != nil {
			return nil, err
		}
		z, err := zstd.NewReader(r.Body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20), zstd.WithDecoderMaxWindow(8<<20))
		if err != nil {
			zstdBodies.Release(1)
			return nil, errs.New(errs.InvalidRequest, "the body is not zstd: %v", err)
		}
		done := sync.OnceFunc(func() {
			z.Close()
			zstdBodies.Release(1)
		})
		return &decompressed{r: z, close: func() error { done(); return nil }}, nil
	}
	return nil, errs.New(errs.UnsupportedMediaType, "Content-Encoding %q is not one of gzip, zstd", clip(enc))
}

// A body of a few bytes may ask for a window of 8 MiB, as many encoders do (RFC 9659), which
// no room is taken for: so there are only so many such bodies at a time, of the process.
var zstdBodies = semaphore.NewWeighted(maxZstdBodies)

const (
	maxZstdBodies = 32
	zstdPatience  = 2 * time.Second
)

// zstdBody waits until one more body may be decompressed.
func zstdBody(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, zstdPatience)
	defer cancel()
	if zstdBodies.Acquire(wait, 1) == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errs.New(errs.Overloaded, "%d bodies of zstd are being received, the most at a time: send this one later, or without compression", maxZstdBodies)
}

// decompressed tells damage of the compressed body from the end of it.
type decompressed struct {
	r     io.Reader
	close func() error
}

func (d *decompressed) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		_, known := errors.AsType[*errs.Error](err)
		if _, large := errors.AsType[*http.MaxBytesError](err); !known && !large {
			err = errs.New(errs.InvalidRequest, "the compressed body does not read: %v", err)
		}
	}
	return n, err
}

func (d *decompressed) Close() error { return d.close() }

// readAll reads a body of at most most bytes, decompressed.
func readAll(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	b, err := body(r)
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(b, most+1))
	if cerr := b.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("rest: %w", cerr)
	}
	if err != nil {
		return nil, bodyError(err)
	}
	if int64(len(out)) > most {
		w.Header().Set("Connection", "close")
		return nil, errs.New(errs.TooLarge, "the body has more than %d bytes", most)
	}
	return out, nil
}

// bodyError names what broke while a body was read as the client's fault.
func bodyError(err error) error {
	if _, ok := errors.AsType[*errs.Error](err); ok {
		return err
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errs.New(errs.InvalidRequest, "the body ended before it was whole: nothing came for too long")
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errs.New(errs.InvalidRequest, "the body ended before it was whole: it did not come within the request's time; ask for more with ?timeout=")
	}
	return errs.New(errs.InvalidRequest, "the body ended before it was whole: the connection broke off")
}
