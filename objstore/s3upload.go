package objstore

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/millrace/millrace/errs"
)

// tries is the S3 client that the transfer manager has: each of its requests is tried as
// the store's own are. One of a writer, whose object has a mark (see Create).
type tries struct {
	*s3.Client

	s    *s3Store
	mark string
}

var _ transfermanager.S3APIClient = tries{}

// ours is the key of an object as callers of the store know it.
func (t tries) ours(key *string) string { return strings.TrimPrefix(aws.ToString(key), t.s.prefix) }

// body is what each try of an upload reads: from the start, and nothing that the try
// before may still be reading.
type body struct {
	io.ReaderAt

	size int64
}

func bodyOf(r io.Reader) (body, error) {
	b, ok := r.(interface {
		io.ReaderAt
		Size() int64
	})
	if !ok {
		return body{}, errors.New("a part is not in memory")
	}
	return body{b, b.Size()}, nil
}

func (b body) reader() io.Reader { return io.NewSectionReader(b, 0, b.size) }

// PutObject is part of S3APIClient.
func (t tries) PutObject(ctx context.Context, in *s3.PutObjectInput, opts ...func(*s3.Options)) (out *s3.PutObjectOutput, err error) {
	b, err := bodyOf(in.Body)
	if err != nil {
		return nil, err
	}
	err = t.s.do(ctx, opWrite, t.ours(in.Key), b.size, func(ctx context.Context, _ patience) (err error) {
		again := *in
		again.Body = b.reader()
		out, err = t.s.client.PutObject(ctx, &again, opts...)
		return err
	})
	return out, err
}

// UploadPart is part of S3APIClient.
func (t tries) UploadPart(ctx context.Context, in *s3.UploadPartInput, opts ...func(*s3.Options)) (out *s3.UploadPartOutput, err error) {
	b, err := bodyOf(in.Body)
	if err != nil {
		return nil, err
	}
	err = t.s.do(ctx, opWrite, t.ours(in.Key), b.size, func(ctx context.Context, _ patience) (err error) {
		again := *in
		again.Body = b.reader()
		out, err = t.s.client.UploadPart(ctx, &again, opts...)
		return err
	})
	return out, err
}

// CreateMultipartUpload is part of S3APIClient. An upload whose answer was lost is one
// that nobody ends; see S3.
func (t tries) CreateMultipartUpload(ctx context.Context, in *s3.CreateMultipartUploadInput, opts ...func(*s3.Options)) (out *s3.CreateMultipartUploadOutput, err error) {
	err = t.s.do(ctx, opWrite, t.ours(in.Key), 0, func(ctx context.Context, _ patience) (err error) {
		out, err = t.s.client.CreateMultipartUpload(ctx, in, opts...)
		return err
	})
	return out, err
}

// CompleteMultipartUpload is part of S3APIClient. That there is no such upload may be
// since an earlier try has completed it; the object says by its mark.
func (t tries) CompleteMultipartUpload(ctx context.Context, in *s3.CompleteMultipartUploadInput, opts ...func(*s3.Options)) (out *s3.CompleteMultipartUploadOutput, err error) {
	key := t.ours(in.Key)
	err = t.s.do(ctx, opWrite, key, 0, func(ctx context.Context, _ patience) (err error) {
		out, err = t.s.client.CompleteMultipartUpload(ctx, in, opts...)
		if err == nil || failureOf(err).code != "NoSuchUpload" {
			return err
		}
		t.s.m.requests.WithLabelValues(opWrite).Inc()
		there, headErr := t.s.head(ctx, key)
		switch {
		case errors.Is(headErr, ErrNotExist):
			return err
		case headErr != nil:
			return headErr
		case there.Metadata[markName] != t.mark:
			return failed(errs.Unavailable, opWrite, t.s.uri, key, errors.New("there is another object, whether this one was there before it is not known"))
		}
		out = &s3.CompleteMultipartUploadOutput{Bucket: in.Bucket, Key: in.Key, ETag: there.ETag}
		return nil
	})
	return out, err
}

// AbortMultipartUpload is part of S3APIClient.
func (t tries) AbortMultipartUpload(ctx context.Context, in *s3.AbortMultipartUploadInput, opts ...func(*s3.Options)) (out *s3.AbortMultipartUploadOutput, err error) {
	err = t.s.do(ctx, opWrite, t.ours(in.Key), 0, func(ctx context.Context, _ patience) (err error) {
		out, err = t.s.client.AbortMultipartUpload(ctx, in, opts...)
		if err != nil && failureOf(err).code == "NoSuchUpload" {
			return nil
		}
		return err
	})
	return out, err
}
