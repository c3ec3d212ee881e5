package objstore_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
)

// liar gives a store at a server that answers as a test says, and counts its requests.
func liar(t *testing.T, answer http.HandlerFunc) (objstore.Store, *atomic.Int64) {
	t.Helper()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	s, err := objstore.Open(t.Context(), "s3://bucket/p", objstore.Options{S3: objstore.S3{
		Endpoint: server.URL, PathStyle: true, AccessKey: "a", SecretKey: "b", Attempts: 3, Backoff: time.Millisecond, Timeout: 5 * time.Second,
	}})
	require.NoError(t, err)
	return s, &asked
}

// O5: an answer to a range that is of another one, or of the whole object, is no answer.
func TestRangesThatLie(t *testing.T) {
	for name, header := range map[string]http.Header{
		"whole object": {},
		"other start":  {"Content-Range": {"bytes 11-20/100"}},
		"too much":     {"Content-Range": {"bytes 10-20/100"}},
		"too little":   {"Content-Range": {"bytes 10-18/100"}},
		"no numbers":   {"Content-Range": {"bytes a-b/c"}},
		"unknown size": {"Content-Range": {"bytes 10-19/*"}},
	} {
		s, asked := liar(t, func(w http.ResponseWriter, r *http.Request) {
			require.Equal(t, "bytes=10-19", r.Header.Get("Range"))
			maps.Copy(w.Header(), header)
			if len(header) > 0 {
				w.WriteHeader(http.StatusPartialContent)
			}
			_, _ = w.Write([]byte("0123456789"))
		})
		err := s.ReadAt(t.Context(), "a", make([]byte, 10), 10)
		require.True(t, errs.Is(err, errs.Unavailable), "%s: %v", name, err)
		require.NotErrorIs(t, err, objstore.ErrNotExist)
		require.Equal(t, int64(3), asked.Load(), name)
	}
}

// An object that does not say how long it is, or is longer than is read at once, is not read.
func TestGetOfUnboundedObjects(t *testing.T) {
	s, _ := liar(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
	})
	_, err := s.Get(t.Context(), "a")
	require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	s, asked := liar(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(objstore.MaxGetBytes+1))
	})
	_, err = s.Get(t.Context(), "a")
	require.True(t, errs.Is(err, errs.TooLarge), "%v", err)
	require.Equal(t, int64(1), asked.Load())
}

func page(w http.ResponseWriter, next string, keys ...string) {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, `<ListBucketResult><IsTruncated>%t</IsTruncated>`, next != "")
	if next != "-" {
		_, _ = fmt.Fprintf(&b, `<NextContinuationToken>%s</NextContinuationToken>`, next)
	}
	for _, k := range keys {
		_, _ = fmt.Fprintf(&b, `<Contents><Key>%s</Key><Size>1</Size></Contents>`, k)
	}
	b.WriteString(`</ListBucketResult>`)
	_, _ = w.Write([]byte(b.String()))
}

// A list that does not rise, breaks off or never ends is an error; keys that are not ours
// are passed over.
func TestListsThatLie(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"falls": func(w http.ResponseWriter, _ *http.Request) { page(w, "", "p/b", "p/a") },
		"again": func(w http.ResponseWriter, _ *http.Request) { page(w, "more", "p/a") },
		"stops": func(w http.ResponseWriter, _ *http.Request) { page(w, "-", "p/a") },
		"empty": func(w http.ResponseWriter, _ *http.Request) { page(w, "more") },
		"no XML": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("<html>welcome"))
		},
	} {
		s, asked := liar(t, answer)
		err := s.List(t.Context(), "", func(objstore.Info) error { return nil })
		require.True(t, errs.Is(err, errs.Unavailable), "%s: %v", name, err)
		require.Less(t, asked.Load(), int64(110), name)
	}
	s, _ := liar(t, func(w http.ResponseWriter, _ *http.Request) {
		page(w, "", "o/a", "p/", "p/a", "p/b c", "p/d/", "p/e")
	})
	var got []string
	require.NoError(t, s.List(t.Context(), "", func(i objstore.Info) error {
		got = append(got, i.Key)
		return nil
	}))
	require.Equal(t, []string{"a", "e"}, got)
}

// Of answers that refuse, some are worth another try and some are not; a person is told
// what it was.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		tries  int64
		want   errs.Code
		reason string
	}{
		{503, "SlowDown", 3, errs.Unavailable, "tried 3 times, in the end: it answers 503 SlowDown"},
		{500, "InternalError", 3, errs.Unavailable, "500 InternalError"},
		{502, "", 3, errs.Unavailable, "it answers 502"},
		{429, "TooManyRequests", 3, errs.Unavailable, "429"},
		{409, "ConditionalRequestConflict", 3, errs.Unavailable, "409 ConditionalRequestConflict"},
		{400, "RequestTimeout", 3, errs.Unavailable, "400 RequestTimeout"},
		{400, "BadDigest", 3, errs.Unavailable, "400 BadDigest"},
		{400, "ExpiredToken", 3, errs.Unavailable, "credentials are not accepted"},
		{400, "InvalidArgument", 1, errs.Unavailable, "400 InvalidArgument"},
		{403, "AccessDenied", 1, errs.Unavailable, "credentials are not accepted for it: 403 AccessDenied"},
		{404, "NoSuchBucket", 1, errs.Unavailable, "there is no such bucket"},
		{404, "", 1, errs.Unavailable, "404"},
		{501, "NotImplemented", 1, errs.Unavailable, "does not know how to"},
		{507, "", 1, errs.StorageFull, "507"},
		{400, "QuotaExceeded", 1, errs.StorageFull, "QuotaExceeded"},
	} {
		s, asked := liar(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			if c.code != "" {
				_, _ = fmt.Fprintf(w, `<Error><Code>%s</Code><Message>m</Message></Error>`, c.code)
			}
		})
		err := s.Create(t.Context(), "a", nil)
		require.True(t, errs.Is(err, c.want), "%d %s: %v", c.status, c.code, err)
		require.ErrorContains(t, err, c.reason)
		require.Equal(t, c.tries, asked.Load(), "%d %s", c.status, c.code)
		_, err = s.Get(t.Context(), "a")
		require.NotErrorIs(t, err, objstore.ErrNotExist, "%d %s", c.status, c.code)
		require.Error(t, err)
	}
}

// O4: a server that never answers is waited for as long as the caller likes, or the
// settings do.
func TestServerThatHangs(t *testing.T) {
	end := make(chan struct{})
	defer close(end)
	s, asked := liar(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-end:
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	w, err := s.Writer(ctx, "a")
	require.NoError(t, err)
	_, err = s.Get(ctx, "a")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	require.ErrorIs(t, s.Create(ctx, "a", nil), context.DeadlineExceeded)
	require.ErrorIs(t, w.Close(), context.DeadlineExceeded)
	require.Equal(t, int64(1), asked.Load())
}

// One object that stays makes Remove of many fail, unless it is since it is not there.
func TestRemoveOfSome(t *testing.T) {
	code := "NoSuchKey"
	s, asked := liar(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `<DeleteResult><Error><Key>p/b</Key><Code>%s</Code><Message>m</Message></Error></DeleteResult>`, code)
	})
	require.NoError(t, s.Remove(t.Context(), "a", "b"))
	require.Equal(t, int64(1), asked.Load())
	code = "AccessDenied"
	err := s.Remove(t.Context(), "a", "b")
	require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	require.ErrorContains(t, err, "p/b stays: AccessDenied")
}

// A writer holds a few parts, however long its object gets.
func TestWriterMemory(t *testing.T) {
	var received atomic.Int64
	s, _ := liar(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		switch {
		case r.Method == http.MethodPut:
			received.Add(n)
			w.Header().Set("ETag", `"e"`)
		case r.URL.Query().Has("uploads"):
			_, _ = w.Write([]byte(`<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>`))
		default:
			_, _ = w.Write([]byte(`<CompleteMultipartUploadResult><Key>k</Key></CompleteMultipartUploadResult>`))
		}
	})
	w, err := s.Writer(t.Context(), "a")
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	chunk := make([]byte, 1<<20)
	const total = 200 << 20
	for range total / len(chunk) {
		_, err := w.Write(chunk)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	runtime.ReadMemStats(&after)
	require.Equal(t, int64(total), received.Load())
	// Six parts of 8 MiB, and what the first one costs while it grows.
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(110<<20))
}
