package objstore_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/objstore/objstoretest"
)

// lonely keeps what the machine says of AWS out of a test.
func lonely(t *testing.T) {
	t.Helper()
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

// Addresses and settings that make no sense are refused before anything is asked for.
func TestS3Settings(t *testing.T) {
	lonely(t)
	good := objstore.S3{Endpoint: "http://127.0.0.1:1", Region: "eu-central-1"}
	for _, uri := range []string{
		"s3://", "s3:///a", "s3://ab", "s3://Bucket", "s3://bucket/a//b", "s3://bucket/../b", "s3://bucket/a b", "s3://bucket_1/a", "s3://user@bucket/a", "s3://bucket?x", "s3://bucket/" + strings.Repeat("a/", 127) + "aa",
	} {
		_, err := objstore.Open(t.Context(), uri, objstore.Options{S3: good})
		require.True(t, errs.Is(err, errs.InvalidValue), "%q: %v", uri, err)
	}
	for uri, want := range map[string]string{"s3://bucket": "s3://bucket", "s3://bucket/": "s3://bucket", "s3://my.bucket-1/a/b/": "s3://my.bucket-1/a/b"} {
		s, err := objstore.Open(t.Context(), uri, objstore.Options{S3: good})
		require.NoError(t, err)
		require.Equal(t, want, s.URI())
	}
	for _, bad := range []objstore.S3{
		{}, // no region anywhere
		{Endpoint: "localhost:9000"},
		{Endpoint: "ftp://localhost"},
		{Region: "x", AccessKey: "a"},
		{Region: "x", SecretKey: "a"},
		{Region: "x", SessionToken: "a"},
		{Region: "x", Attempts: -1},
		{Region: "x", Timeout: -1},
		{Region: "x", PartBytes: 1 << 20},
	} {
		_, err := objstore.Open(t.Context(), "s3://bucket", objstore.Options{S3: bad})
		require.True(t, errs.Is(err, errs.InvalidValue), "%+v: %v", bad, err)
	}
	t.Setenv("AWS_REGION", "eu-west-1")
	_, err := objstore.Open(t.Context(), "s3://bucket", objstore.Options{})
	require.NoError(t, err)
}

// O4: a server that is not there is tried a few times, and the caller hears what is wrong.
func TestS3ServerIsAway(t *testing.T) {
	lonely(t)
	server := httptest.NewServer(nil)
	server.Close()
	o := objstore.Options{S3: objstore.S3{Endpoint: server.URL, PathStyle: true, AccessKey: "a", SecretKey: "b", Attempts: 3}}
	s, err := objstore.Open(t.Context(), "s3://bucket/p", o)
	require.NoError(t, err)
	_, err = s.Get(t.Context(), "a")
	require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	require.ErrorContains(t, err, "tried 3 times")
	require.ErrorContains(t, err, "connection refused")
	require.ErrorContains(t, err, "s3://bucket/p/a")
}

// A bucket that is not there is no missing object, whatever is asked; nor is one that
// does not let us in. Neither is asked twice.
func TestS3MissingBucketAndDenied(t *testing.T) {
	server := objstoretest.StartGateway(t)
	denied := server.Settings()
	denied.SecretKey = "wrong"
	for _, c := range []struct {
		uri    string
		s3     objstore.S3
		reason string
	}{
		{"s3://missing/p", server.Settings(), "there is no such bucket"},
		{server.URI("p"), denied, "the credentials are not accepted for it: 403 SignatureDoesNotMatch"},
	} {
		s, err := objstore.Open(t.Context(), c.uri, objstore.Options{S3: c.s3})
		require.NoError(t, err)
		ctx := t.Context()
		_, getErr := s.Get(ctx, "a")
		_, statErr := s.Stat(ctx, "a")
		w, err := s.Writer(ctx, "a")
		require.NoError(t, err)
		for i, err := range []error{
			getErr, s.ReadAt(ctx, "a", make([]byte, 1), 0), s.Put(ctx, "a", nil), s.Create(ctx, "a", nil), w.Close(),
			s.Remove(ctx, "a", "b"), s.List(ctx, "", func(objstore.Info) error { return nil }), statErr,
		} {
			require.True(t, errs.Is(err, errs.Unavailable), "%d %v", i, err)
			if i < 7 || c.s3.SecretKey != "wrong" { // an answer to HEAD has no code
				require.ErrorContains(t, err, c.reason, i)
			}
			require.NotContains(t, err.Error(), "tried")
		}
	}
}

// Credentials of the environment that expire are renewed before they do, and when the
// server says that they have.
func TestS3CredentialsExpire(t *testing.T) {
	lonely(t)
	server := objstoretest.StartFake(t)
	var given, refused atomic.Int64
	chain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"AccessKeyId":"key%d","SecretAccessKey":"s","Token":"t","Expiration":%q}`, given.Add(1), time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	defer chain.Close()
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", chain.URL)
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refused.Load() == 0 && !strings.Contains(r.Header.Get("Authorization"), "Credential=key2/") {
			refused.Add(1)
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprint(w, `<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>`)
			return
		}
		req, err := http.NewRequestWithContext(r.Context(), r.Method, server.Endpoint+r.URL.RequestURI(), r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header, req.ContentLength = r.Header, r.ContentLength
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
	}))
	defer door.Close()
	defer http.DefaultClient.CloseIdleConnections()
	s, err := objstore.Open(t.Context(), server.URI("p"), objstore.Options{S3: objstore.S3{Endpoint: door.URL, PathStyle: true}})
	require.NoError(t, err)
	require.NoError(t, s.Put(t.Context(), "a", []byte("x")))
	require.NoError(t, s.Put(t.Context(), "b", []byte("x")))
	require.Equal(t, int64(2), given.Load())
	require.Equal(t, int64(1), refused.Load())
}

// An object that a killed writer left in parts is not seen.
func TestS3WriterIsKilled(t *testing.T) {
	server := objstoretest.StartGateway(t)
	s := opener(server.URI("p"), s3Options(server))(t)
	w, err := s.Writer(t.Context(), "a")
	require.NoError(t, err)
	_, err = w.Write(make([]byte, 12<<20))
	require.NoError(t, err)
	client := server.Client()
	require.Eventually(t, func() bool {
		out, err := client.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: &server.Bucket})
		return err == nil && len(out.Uploads) == 1
	}, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, s.List(t.Context(), "", func(i objstore.Info) error { return fmt.Errorf("listed %s", i.Key) }))
	_, err = s.Get(t.Context(), "a")
	require.ErrorIs(t, err, objstore.ErrNotExist)
	// Given up, it leaves no upload either.
	w.Abort()
	out, err := client.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: &server.Bucket})
	require.NoError(t, err)
	require.Empty(t, out.Uploads)
}
