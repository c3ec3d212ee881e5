package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// outcome is what became of one publish.
type outcome int

const (
	stored   outcome = iota // it is in the stream
	unsent                  // it reached no server
	busy                    // the server put it aside unread
	full                    // there is no room for it
	refused                 // it is not taken at all
	doubtful                // it may be in the stream, or another record in its place
)

// writerHeader names the Log that a message is of (T4).
const writerHeader = "Millrace-Writer"

const (
	firstPause = 10 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// The server's numbers of errors, of which it says that nothing was stored.
const (
	errTooLarge       jetstream.ErrorCode = 10054
	errHeaderTooLarge jetstream.ErrorCode = 10097
	errOtherStream    jetstream.ErrorCode = 10060
	errStoreFailed    jetstream.ErrorCode = 10077
	errNoResources    jetstream.ErrorCode = 10023
	errNoStore        jetstream.ErrorCode = 10047
	errAccountStore   jetstream.ErrorCode = 10002
	errTooMany        jetstream.ErrorCode = 10167
)

// textMaxBytes is what the server says with errStoreFailed when the stream is full. With
// any other text something went wrong while it was stored.
const textMaxBytes = "maximum bytes exceeded"

// publish sends a record once, to become the message with the sequence.
func (l *Log) publish(ctx context.Context, seq uint64, rec []byte) (outcome, error) {
	ctx, cancel := l.s.conn.Request(ctx, l.s.opts.AnswerTimeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return unsent, errors.New("there is no connection")
	}
	answer, err := l.s.conn.NATS().RequestMsgWithContext(ctx, &nats.Msg{
		Subject: l.subject, Data: rec,
		Header: nats.Header{
			jetstream.ExpectedLastSeqHeader: {strconv.FormatUint(seq-1, 10)},
			jetstream.ExpectedStreamHeader:  {l.name},
			writerHeader:                    {l.writer},
		},
	})
	switch {
	case err == nil:
		return readAnswer(answer.Data, l.name, seq)
	case errors.Is(err, nats.ErrNoResponders):
		return unsent, errors.New("the stream has no leader, or is not there")
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionDraining):
		return unsent, err // nats.ErrConnectionClosed is also said of what was sent before
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrHeadersNotSupported):
		return refused, err
	}
	return doubtful, err
}

// readAnswer reads the server's answer to a publish.
func readAnswer(b []byte, stream string, seq uint64) (outcome, error) {
	var a struct {
		Error  *jetstream.APIError `json:"error"`
		Stream string              `json:"stream"`
		Seq    uint64              `json:"seq"`
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return doubtful, fmt.Errorf("an answer that is none: %w", err)
	}
	if a.Error == nil {
		if a.Stream != stream || a.Seq != seq {
			return doubtful, fmt.Errorf("it was stored at %s/%d instead of %s/%d", a.Stream, a.Seq, stream, seq)
		}
		return stored, nil
	}
	switch a.Error.ErrorCode {
	case errTooMany:
		return busy, a.Error
	case errNoResources, errNoStore, errAccountStore:
		return full, a.Error
	case errStoreFailed:
		if strings.Contains(a.Error.Description, textMaxBytes) {
			return full, a.Error
		}
	case errTooLarge, errHeaderTooLarge, errOtherStream:
		return refused, a.Error
	default:
	}
	return doubtful, a.Error // also a wrong last sequence: whose record is there has to be read
}
