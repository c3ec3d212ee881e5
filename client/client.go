package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi/httpclient"
)

// DefaultServer is where a server with default settings listens.
const DefaultServer = "http://127.0.0.1:8080"

// DefaultRetries is how often a request is sent again unless Options says otherwise.
const DefaultRetries = 4

// maxTimeout is the longest ?timeout= the server takes.
const maxTimeout = 120 * time.Second

// Options say which server and how. The zero value talks to a local server.
type Options struct {
	// Server is its address: "http://host:port" or "https://host:port", or
	// "host:port" for plain HTTP.
	// Empty is DefaultServer.
	Server string
	// Token is sent as bearer token; empty sends none.
	Token string
	// TokenFile holds the token instead; it is read anew for each request, so that the
	// token can be renewed.
	TokenFile string
	// CA are the authorities, in PEM form, that may have signed the server's certificate;
	// empty are those of the system. Not together with HTTPClient.
	CA []byte
	// UserAgent names the program; empty is "millrace-go".
	UserAgent string
	// Retries is how often a request may be sent again; 0 is DefaultRetries,
	// negative is never.
	Retries int
	// HTTPClient makes the requests. It must not have a Timeout, which would cut
	// streams off. Nil is a client of our own.
	HTTPClient *http.Client
}

// Client talks to one server.
type Client struct {
	server  string
	retries int
	api     *httpclient.Client
}

// New makes a client. It makes no connection.
func New(o Options) (*Client, error) {
	if o.Server == "" {
		o.Server = DefaultServer
	}
	if !strings.Contains(o.Server, "://") {
		o.Server = "http://" + o.Server
	}
	u, err := url.Parse(o.Server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errs.New(errs.InvalidRequest, "the server address %q is not of the form http://host:port", o.Server)
	}
	if o.Token != "" && o.TokenFile != "" {
		return nil, errs.New(errs.InvalidRequest, "a token and a file of one are given; one of them is to be used")
	}
	if _, err := o.token(); err != nil {
		return nil, err
	}
	if o.UserAgent == "" {
		o.UserAgent = "millrace-go"
	}
	switch {
	case o.Retries == 0:
		o.Retries = DefaultRetries
	case o.Retries < 0:
		o.Retries = 0
	}
	if o.HTTPClient == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = 64 // one server; the default of 2 would reconnect all the time
		if len(o.CA) > 0 {
			roots := x509.NewCertPool()
			if !roots.AppendCertsFromPEM(o.CA) {
				return nil, errs.New(errs.InvalidRequest, "there is no certificate in PEM form among the authorities")
			}
			transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		}
		o.HTTPClient = &http.Client{Transport: transport}
	}
	api, err := httpclient.NewClient(u.String(),
		httpclient.WithHTTPClient(&retrier{http: o.HTTPClient, retries: o.Retries}),
		httpclient.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			r.Header.Set("User-Agent", o.UserAgent)
			token, err := o.token()
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			return err
		}))
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return &Client{server: u.String(), retries: o.Retries, api: api}, nil
}

// Server is the address of the server.
func (c *Client) Server() string { return c.server }

// accept asks for a media type. Streams are asked for uncompressed: they are
// made to be read as they lie.
func accept(mediaType string) httpclient.RequestEditorFn {
	return func(_ context.Context, r *http.Request) error {
		r.Header.Set("Accept", mediaType)
		if mediaType != mediaJSON {
			r.Header.Set("Accept-Encoding", "identity")
		}
		return nil
	}
}

// timeoutOf tells the server how long the caller will wait, so that it stops
// when nobody listens any more; nil leaves it to the server.
func timeoutOf(ctx context.Context) *string {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	left := min(max(time.Until(deadline), time.Millisecond), maxTimeout)
	return new(strconv.FormatInt(left.Milliseconds(), 10) + "ms")
}

// Media types of bodies and answers.
const (
	mediaJSON   = "application/json"
	mediaNDJSON = "application/x-ndjson"
	mediaArrow  = "application/vnd.apache.arrow.stream"
	mediaEvents = "text/event-stream"
)
