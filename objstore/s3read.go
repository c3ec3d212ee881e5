package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/millrace/millrace/errs"
)

// missing is a try's error when the answer says that there is no such object; a missing
// bucket is something else. HEAD does not tell them apart.
func (s *s3Store) missing(err error, key string) error {
	if f := failureOf(err); f.code == "NoSuchKey" {
		return missing(s.uri, key)
	}
	return err
}

// Get is part of Reader.
func (s *s3Store) Get(ctx context.Context, key string) ([]byte, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	var body []byte
	err := s.do(ctx, opGet, key, 0, func(ctx context.Context, p patience) error {
		out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: s.key(key)})
		if err != nil {
			return s.missing(err, key)
		}
		defer out.Body.Close()
		size := aws.ToInt64(out.ContentLength)
		if size > MaxGetBytes {
			return tooLarge(s.uri, key, size)
		}
		if out.ContentLength == nil || size < 0 {
			return errors.New("the answer does not say how long the object is")
		}
		p.more(size)
		body = make([]byte, size)
		return readBody(out.Body, body)
	})
	if err != nil {
		return nil, err
	}
	return body, nil
}

// readBody reads a body that has exactly the length of p. Its end is read too: there the
// SDK compares checksums. A body that is cut off is not io.ErrUnexpectedEOF, which is
// for objects that are.
func readBody(r io.Reader, p []byte) error {
	n, err := io.ReadFull(r, p)
	if err == nil {
		var more [1]byte
		n, err = r.Read(more[:])
		for n == 0 && err == nil {
			n, err = r.Read(more[:])
		}
		if n > 0 {
			return fmt.Errorf("the answer has more than the %d bytes that it says", len(p))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		n = len(p)
	}
	return fmt.Errorf("the answer broke off after %d of %d bytes: %s", n, len(p), err.Error())
}

// ReadAt is part of Reader. The checksum of a whole object says nothing about a range of
// it, so what holds is its length, and whatever the bytes themselves are checked by.
func (s *s3Store) ReadAt(ctx context.Context, key string, p []byte, off int64) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if off < 0 {
		return negative(key, off)
	}
	if len(p) == 0 {
		info, err := s.Stat(ctx, key)
		if err == nil && off > info.Bytes {
			err = short(s.uri, key, 0, off)
		}
		return err
	}
	end := off + int64(len(p)) - 1
	return s.do(ctx, opReadAt, key, int64(len(p)), func(ctx context.Context, _ patience) error {
		out, err := s.client.GetObject(ctx, &s3.GetObjectInput{
			Bucket: &s.bucket, Key: s.key(key), Range: new(fmt.Sprintf("bytes=%d-%d", off, end)),
		}, func(o *s3.Options) { o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired })
		if err != nil {
			if f := failureOf(err); f.status == http.StatusRequestedRangeNotSatisfiable {
				return short(s.uri, key, len(p), off)
			}
			return s.missing(err, key)
		}
		defer out.Body.Close()
		first, last, total, ok := contentRange(aws.ToString(out.ContentRange))
		switch {
		case !ok || first != off || last > end:
			return fmt.Errorf("bytes %d-%d were asked for, the answer has %q", off, end, aws.ToString(out.ContentRange))
		case total <= end:
			return short(s.uri, key, len(p), off)
		case last < end:
			return fmt.Errorf("bytes %d-%d were asked for, the answer has only %q", off, end, aws.ToString(out.ContentRange))
		}
		return readBody(out.Body, p)
	})
}

// contentRange reads "bytes first-last/total".
func contentRange(text string) (first, last, total int64, ok bool) {
	text, ok = strings.CutPrefix(text, "bytes ")
	span, size, ok2 := strings.Cut(text, "/")
	from, to, ok3 := strings.Cut(span, "-")
	first, err1 := strconv.ParseInt(from, 10, 64)
	last, err2 := strconv.ParseInt(to, 10, 64)
	total, err3 := strconv.ParseInt(size, 10, 64)
	return first, last, total, ok && ok2 && ok3 && err1 == nil && err2 == nil && err3 == nil
}

// Stat is part of Reader.
func (s *s3Store) Stat(ctx context.Context, key string) (Info, error) {
	if err := checkKey(key); err != nil {
		return Info{}, err
	}
	var info Info
	err := s.do(ctx, opStat, key, 0, func(ctx context.Context, _ patience) error {
		out, err := s.head(ctx, key)
		if err != nil {
			return err
		}
		if out.ContentLength == nil {
			return errors.New("the answer does not say how long the object is")
		}
		info = Info{Key: key, Bytes: *out.ContentLength, Modified: aws.ToTime(out.LastModified)}
		return nil
	})
	return info, err
}

// head asks about an object. An answer to HEAD has no body to say what it is that is
// missing, so a second request asks for the first byte.
func (s *s3Store) head(ctx context.Context, key string) (*s3.HeadObjectOutput, error) {
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: s.key(key)})
	if err == nil || failureOf(err).status != http.StatusNotFound {
		return out, err
	}
	s.m.requests.WithLabelValues(opStat).Inc()
	first, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: s.key(key), Range: new("bytes=0-0")})
	if err != nil && failureOf(err).status != http.StatusRequestedRangeNotSatisfiable {
		return nil, s.missing(err, key)
	}
	if err == nil {
		_ = first.Body.Close()
	}
	return nil, errors.New("it was not there, and is now")
}

// maxEmptyPages bounds the pages without keys that a list goes on after.
const maxEmptyPages = 100

// List is part of Reader. A list that does not rise is an error: whoever goes by it
// would miss objects.
func (s *s3Store) List(ctx context.Context, prefix string, give func(Info) error) error {
	if err := checkPrefix(prefix); err != nil {
		return err
	}
	var token *string
	last, empty := "", 0
	for {
		var page *s3.ListObjectsV2Output
		err := s.do(ctx, opList, prefix, 1<<20, func(ctx context.Context, _ patience) (err error) {
			page, err = s.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: s.key(prefix), ContinuationToken: token})
			return err
		})
		if err != nil {
			return err
		}
		if empty++; len(page.Contents) > 0 {
			empty = 0
		}
		for _, o := range page.Contents {
			full := aws.ToString(o.Key)
			if full <= last || o.Size == nil {
				return failed(errs.Unavailable, opList, s.uri, prefix, fmt.Errorf("after %q the list has %q", last, full))
			}
			last = full
			key, ok := strings.CutPrefix(full, s.prefix)
			if !ok || !strings.HasPrefix(key, prefix) || checkKey(key) != nil {
				continue // Not one of ours, such as the mark of an empty folder.
			}
			if err := give(Info{Key: key, Bytes: *o.Size, Modified: aws.ToTime(o.LastModified)}); err != nil {
				return err
			}
		}
		if !aws.ToBool(page.IsTruncated) {
			return nil
		}
		token = page.NextContinuationToken
		if aws.ToString(token) == "" || empty > maxEmptyPages {
			return failed(errs.Unavailable, opList, s.uri, prefix, errors.New("the list breaks off"))
		}
	}
}
