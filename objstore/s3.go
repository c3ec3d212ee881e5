package objstore

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/millrace/millrace/errs"
)

// S3 are the settings of s3:// stores. The zero value is AWS, with the region and the
// credentials that the process finds as AWS's own tools do: AWS_REGION, AWS_PROFILE,
// AWS_ACCESS_KEY_ID and the like, ~/.aws, then the role of a container or a machine.
// Credentials that expire are renewed before they do, and once a request hears that
// they have.
//
// The server must know conditional writes (PutObject with If-None-Match), keep user
// metadata, and list right after a write; AWS does, and versitygw, Ceph and MinIO. A
// process that is killed while it writes in parts leaves an upload that is never seen
// and is paid for: give the bucket a lifecycle rule that aborts incomplete multipart
// uploads after a day.
type S3 struct {
	// Endpoint is the address of another server than AWS, such as http://127.0.0.1:9000.
	Endpoint string
	// Region of the bucket; "" is what the environment says, or us-east-1 with an Endpoint.
	Region string
	// PathStyle has the bucket in the path of requests instead of the host's name, which
	// most servers other than AWS need.
	PathStyle bool
	// AccessKey, SecretKey and SessionToken are used as they are instead of what the
	// environment says.
	AccessKey, SecretKey, SessionToken string
	// Timeout is how long one try of a request may take, and a second more for each
	// 256 KiB that it moves; 0 is 30 seconds.
	Timeout time.Duration
	// Attempts is how often a request is tried; 0 is 6.
	Attempts int
	// Backoff is the wait before the second try; it doubles with each one more, up to
	// 5 seconds, and up to half of it is left to chance. 0 is 0.1 seconds.
	Backoff time.Duration
	// PartBytes is what a Writer sends at once, at least 5 MiB; 0 is 8 MiB. An object has
	// at most 10,000 parts.
	PartBytes int64
	// Uploads is how many parts of a Writer are on their way at once, each of them in
	// memory and two more; 0 is 4.
	Uploads int
}

// Bounds and defaults of the settings.
const (
	minPartBytes     = 5 << 20
	defaultPartBytes = 8 << 20
	defaultUploads   = 4
	defaultAttempts  = 6
	defaultTimeout   = 30 * time.Second
	defaultBackoff   = 100 * time.Millisecond
	maxBackoff       = 5 * time.Second
	slowestPerSecond = 256 << 10

	// endTimeout is for giving up an upload whose caller is gone.
	endTimeout = 30 * time.Second
)

func (o *S3) ensureDefaults() error {
	if o.Endpoint != "" {
		u, err := url.Parse(o.Endpoint)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return errs.New(errs.InvalidValue, "the S3 endpoint %q is no address: write http://host:port or https://host", o.Endpoint)
		}
	}
	if (o.AccessKey == "") != (o.SecretKey == "") || (o.SessionToken != "" && o.AccessKey == "") {
		return errs.New(errs.InvalidValue, "an S3 access key and its secret key go together")
	}
	if o.Timeout < 0 || o.Backoff < 0 || o.Attempts < 0 || o.Uploads < 0 || (o.PartBytes != 0 && o.PartBytes < minPartBytes) {
		return errs.New(errs.InvalidValue, "S3 settings: times, attempts and uploads are not below 0, parts not below %d bytes", minPartBytes)
	}
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Backoff = min(cmp.Or(o.Backoff, defaultBackoff), maxBackoff)
	o.Attempts = cmp.Or(o.Attempts, defaultAttempts)
	o.PartBytes = cmp.Or(o.PartBytes, defaultPartBytes)
	o.Uploads = cmp.Or(o.Uploads, defaultUploads)
	return nil
}

// s3Store keeps objects in a bucket of S3. It makes each try of a request itself, since
// only it knows what an answer that was lost means for a call, and when the body of one
// is whole.
type s3Store struct {
	o              S3
	bucket, prefix string // prefix ends in "/" unless it is empty
	uri            string
	client         *s3.Client
	uploads        *transfermanager.Client
	credentials    *aws.CredentialsCache
	m              *metrics
}

var _ Store = (*s3Store)(nil)

func openS3(ctx context.Context, o S3, bucket, prefix string, m *metrics) (*s3Store, error) {
	if err := o.ensureDefaults(); err != nil {
		return nil, err
	}
	load := []func(*config.LoadOptions) error{
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }),
		config.WithHTTPClient(newHTTPClient(o.Timeout)),
		config.WithLogger(logging.Nop{}), // What it warns of comes back as errors.
	}
	if o.Region != "" {
		load = append(load, config.WithRegion(o.Region))
	}
	if o.AccessKey != "" {
		load = append(load, config.WithCredentialsProvider(aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: o.AccessKey, SecretAccessKey: o.SecretKey, SessionToken: o.SessionToken, Source: "millrace settings"}, nil
		})))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, errs.New(errs.InvalidValue, "the settings of S3 cannot be read: %v", err)
	}
	if cfg.Region == "" && o.Endpoint == "" {
		return nil, errs.New(errs.InvalidValue, "the region of the S3 bucket %q is not known: set it", bucket)
	}
	s := &s3Store{o: o, bucket: bucket, uri: "s3://" + bucket, m: m}
	if prefix != "" {
		s.uri, s.prefix = s.uri+"/"+prefix, prefix+"/"
	}
	s.credentials, _ = cfg.Credentials.(*aws.CredentialsCache)
	if s.credentials == nil {
		s.credentials = aws.NewCredentialsCache(cfg.Credentials)
	}
	s.client = s3.NewFromConfig(cfg, func(c *s3.Options) {
		c.Credentials = s.credentials
		c.Region = cmp.Or(c.Region, "us-east-1")
		c.UsePathStyle = o.PathStyle
		c.DisableLogOutputChecksumValidationSkipped = true
		if o.Endpoint != "" {
			c.BaseEndpoint = &o.Endpoint
		}
	})
	s.uploads = transfermanager.New(s.client, func(t *transfermanager.Options) {
		t.PartSizeBytes, t.MultipartUploadThreshold = o.PartBytes, o.PartBytes
		t.Concurrency = o.Uploads
		t.FailTimeout = endTimeout
	})
	return s, nil
}

// newHTTPClient makes what requests go through. Time-outs of whole tries are those of
// their contexts.
func newHTTPClient(timeout time.Duration) *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = min(timeout, 5*time.Second) }).
		WithTransportOptions(func(t *http.Transport) {
			t.MaxIdleConnsPerHost = 64
			t.TLSHandshakeTimeout = min(timeout, 10*time.Second)
		})
}

// URI is part of Reader.
func (s *s3Store) URI() string { return s.uri }

func (s *s3Store) key(key string) *string { return new(s.prefix + key) }
