package objstore

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/millrace/millrace/errs"
)

// markName names the metadata by which a call knows the object that it made.
const markName = "millrace-call"

// Put is part of Store.
func (s *s3Store) Put(ctx context.Context, key string, body []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return s.do(ctx, opPut, key, int64(len(body)), func(ctx context.Context, _ patience) error {
		_, err := s.client.PutObject(ctx, &s3.PutObjectInput{Bucket: &s.bucket, Key: s.key(key), Body: bytes.NewReader(body)})
		return err
	})
}

// Create is part of Store. The server decides, by If-None-Match (O2). When it refuses,
// the object may still be ours: an earlier try, of this call or of a proxy's on the way,
// may have made it without an answer getting through. So the object carries a mark that
// is this call's alone, in its metadata, and one that is there is asked for its mark.
// (Equal bytes would not do: two calls may write the same.)
func (s *s3Store) Create(ctx context.Context, key string, body []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	mark := rand.Text()
	return s.do(ctx, opCreate, key, int64(len(body)), func(ctx context.Context, _ patience) error {
		_, err := s.client.PutObject(ctx, &s3.PutObjectInput{
			Bucket: &s.bucket, Key: s.key(key), Body: bytes.NewReader(body), IfNoneMatch: new("*"), Metadata: map[string]string{markName: mark},
		})
		if err == nil || failureOf(err).status != http.StatusPreconditionFailed {
			return err
		}
		s.m.requests.WithLabelValues(opCreate).Inc()
		there, err := s.head(ctx, key)
		switch {
		case errors.Is(err, ErrNotExist):
			return failed(errs.Unavailable, opCreate, s.uri, key, errors.New("there was an object that is gone now, whether it was this call's is not known"))
		case err != nil:
			return err // tried again, from the start
		case there.Metadata[markName] == mark:
			return nil
		default:
			return exists(s.uri, key)
		}
	})
}

// removeAtOnce is the most keys of a request.
const removeAtOnce = 1000

// Remove is part of Store.
func (s *s3Store) Remove(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := checkKey(key); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(keys, removeAtOnce) {
		err := s.do(ctx, opRemove, some[0], 1<<20, func(ctx context.Context, _ patience) error {
			if len(some) == 1 {
				_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: s.key(some[0])})
				if err != nil && failureOf(err).code == "NoSuchKey" {
					return nil
				}
				return err
			}
			ids := make([]types.ObjectIdentifier, len(some))
			for i, key := range some {
				ids[i].Key = s.key(key)
			}
			out, err := s.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &s.bucket, Delete: &types.Delete{Objects: ids, Quiet: new(true)}})
			if err != nil {
				return err
			}
			for _, e := range out.Errors {
				if aws.ToString(e.Code) != "NoSuchKey" {
					return fmt.Errorf("%s stays: %s %.200s", aws.ToString(e.Key), aws.ToString(e.Code), aws.ToString(e.Message))
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Writer is part of Store. What is written goes through a pipe to the transfer manager,
// which sends it in parts; an object of less than a part is one request.
func (s *s3Store) Writer(ctx context.Context, key string) (Writer, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, failed(errs.Unavailable, opWrite, s.uri, key, context.Cause(ctx))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	r, p := io.Pipe()
	mark := rand.Text()
	w := &s3Writer{s: s, key: key, pipe: p, buf: bufio.NewWriterSize(p, 64<<10), ctx: ctx, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		_, err := s.uploads.UploadObject(ctx, &transfermanager.UploadObjectInput{
			Bucket: &s.bucket, Key: s.key(key), Body: r, Metadata: map[string]string{markName: mark},
		}, func(o *transfermanager.Options) { o.S3 = tries{Client: s.client, s: s, mark: mark} })
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		w.err = err
		_ = r.CloseWithError(errors.New("the upload has ended"))
	}()
	// A writer that waits for the next Write hears of the end of its context too.
	w.unhook = context.AfterFunc(ctx, func() { _ = p.CloseWithError(context.Cause(ctx)) })
	return w, nil
}

// errAborted ends the upload of a writer that was given up.
var errAborted = errors.New("it was given up")

type s3Writer struct {
	s      *s3Store
	key    string
	pipe   *io.PipeWriter
	buf    *bufio.Writer
	ctx    context.Context // of the upload
	cancel context.CancelCauseFunc
	unhook func() bool
	done   chan struct{}
	err    error // of the upload, once done is closed
	ended  bool
}

// Write is part of Writer.
func (w *s3Writer) Write(p []byte) (int, error) {
	if w.ended {
		return 0, w.fail(errors.New("it was written to after its end"))
	}
	n, err := w.buf.Write(p)
	if err != nil {
		return n, w.fail(w.cause(err))
	}
	return n, nil
}

// cause is why the upload ended, when it has.
func (w *s3Writer) cause(err error) error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	select {
	case <-w.done:
		if w.err != nil {
			return w.err
		}
	default:
	}
	return err
}

func (w *s3Writer) fail(err error) error {
	if e, ok := errors.AsType[*errs.Error](err); ok {
		return e
	}
	return failed(errs.Unavailable, opWrite, w.s.uri, w.key, err)
}

// Close is part of Writer.
func (w *s3Writer) Close() error {
	if w.ended {
		return w.fail(errors.New("it has ended before"))
	}
	err := w.buf.Flush()
	if err != nil {
		err = w.cause(err)
		w.Abort()
		return w.fail(err)
	}
	w.end(func() { _ = w.pipe.Close() })
	if w.err != nil {
		return w.fail(w.err)
	}
	return nil
}

// Abort is part of Writer.
func (w *s3Writer) Abort() {
	if w.ended {
		return
	}
	w.end(func() {
		w.cancel(errAborted)
		_ = w.pipe.CloseWithError(errAborted)
	})
}

// end ends the upload in a way, and waits for it.
func (w *s3Writer) end(how func()) {
	w.ended = true
	how()
	<-w.done
	w.unhook()
	w.cancel(nil)
}
