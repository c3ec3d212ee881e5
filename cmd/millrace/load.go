package main

import (
	"context"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/client"
)

// load is the loading of a file, which may have to be sent again from its beginning.
type load struct {
	c    *putCmd
	a    *app
	cols []millrace.Column

	in      *input
	skipped *skippedRows
	loader  loader
	bar     *bar

	body *io.PipeReader // what the server reads
	made chan error     // why the body ended; nil when it was made whole
}

// open begins to read the input.
func (l *load) open() (err error) {
	if l.in, err = openInput(l.a, l.c.File, l.c.InputFormat); err != nil {
		return err
	}
	if l.loader, l.skipped, err = l.c.loader(l.in, l.cols); err != nil {
		l.close()
		return err
	}
	if l.bar == nil {
		l.bar = l.c.progress(l.a, l.in)
	}
	l.bar.begin(l.in)
	return nil
}

func (l *load) close() {
	if l.in != nil {
		l.in.close()
		l.in = nil
	}
}

// repeatable says whether the input can be read again: what comes through a pipe
// cannot.
func (l *load) repeatable() bool { return l.in.file != nil && l.in.size >= 0 }

// start makes the body while it is read.
func (l *load) start() *io.PipeReader {
	body, pipe := io.Pipe()
	made, send := make(chan error, 1), l.loader.send
	go func() {
		err := send(pipe)
		if isBadRow(err) {
			_ = pipe.Close()
		} else {
			_ = pipe.CloseWithError(err) // nil ends it well
		}
		made <- err
	}()
	l.body, l.made = body, made
	return body
}

// stop ends the making of the body and says what went wrong with it, nil when it is
// only that nobody reads it any more.
func (l *load) stop() error {
	_ = l.body.CloseWithError(errAnswered)
	if err := <-l.made; !isAnswered(err) {
		return err
	}
	return nil
}

// again makes the body anew, unless it cannot be made.
func (l *load) again() (io.ReadCloser, error) {
	err := l.stop()
	l.made <- err // stop comes again
	if err != nil && !isBadRow(err) {
		return nil, err
	}
	l.close()
	if err := l.open(); err != nil {
		return nil, err
	}
	return l.start(), nil
}

// upload streams the body while it is made. When the server answers before the end,
// the rest is not made.
func (l *load) upload(ctx context.Context, t *client.Table, o client.WriteOptions) (client.WriteResult, error) {
	write := t.WriteNDJSON
	if l.loader.arrow() {
		write = t.WriteArrow
	}
	result, err := write(ctx, l.start(), o)
	makeErr := l.stop()
	if partial, ok := client.PartialResult(err); ok {
		result = partial
	}
	if makeErr != nil && (err == nil || !isBadRow(makeErr)) {
		return result, makeErr // the cause; err only says that the body broke off
	}
	return result, err
}

// bar is the progress of a load: on a terminal a bar, else nothing but a count.
type bar struct {
	read int64
	show *progressbar.ProgressBar
}

func (c *putCmd) progress(a *app, in *input) *bar {
	b := &bar{}
	if !c.NoProgress && isTerminal(a.stderr) {
		b.show = progressbar.NewOptions64(in.size,
			progressbar.OptionSetWriter(a.stderr), progressbar.OptionSetDescription(printable(in.name)),
			progressbar.OptionShowBytes(true), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(), progressbar.OptionFullWidth())
	}
	return b
}

// begin counts from the beginning of an input, which has been looked at.
func (b *bar) begin(in *input) {
	b.read = 0
	if b.show != nil {
		b.show.Reset()
	}
	b.add(int(in.read.n))
	in.read.tell = b.add
}

func (b *bar) add(n int) {
	b.read += int64(n)
	if b.show != nil {
		_ = b.show.Add(n) // a bar that cannot be drawn is no reason to stop
	}
}

func (b *bar) end() {
	if b.show != nil {
		_ = b.show.Finish()
	}
}
