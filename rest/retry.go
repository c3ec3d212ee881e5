package rest

import (
	"encoding/binary"
	"net/http"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
)

// What makes a write safe to be sent again.
const (
	headerKey      = "Idempotency-Key"
	headerReplayed = "Idempotent-Replayed"
)

// identify reads the headers that make the request recognisable when it comes again.
// An idempotency key is held until the request is answered.
func (wr *writing) identify() error {
	h := wr.r.Header
	keys := h.Values(headerKey)
	id, seq, epoch := h.Get("X-Writer-Id"), h.Get("X-Writer-Seq"), h.Get("X-Writer-Epoch")
	numbered, who := id != "" || seq != "" || epoch != "", auth.Scope(wr.r.Context())
	switch {
	case len(keys) > 0 && numbered:
		return errs.New(errs.InvalidRequest, "a request has an Idempotency-Key or a number of its writer (X-Writer-Id, X-Writer-Seq), not both")
	case len(keys) > 1:
		return errs.New(errs.InvalidRequest, "the request has %d Idempotency-Keys", len(keys))
	case len(keys) == 1:
		end, err := wr.h.o.Router.BeginKey(wr.table, who, keys[0])
		if err != nil {
			return err
		}
		wr.endKey = end
		wr.writer = &router.WriterSequence{Principal: who, ID: keys[0], Key: true, Seq: 1}
		wr.hash = xxhash.New()
		return nil
	case !numbered:
		return nil
	case id == "" || seq == "":
		return errs.New(errs.InvalidValue, "X-Writer-Id and X-Writer-Seq go together")
	}
	w := &router.WriterSequence{Principal: who, ID: id}
	var err error
	if w.Seq, err = strconv.ParseUint(seq, 10, 63); err != nil || w.Seq == 0 {
		return errs.New(errs.InvalidValue, "X-Writer-Seq %q is not a whole number from 1", clip(seq))
	}
	if epoch != "" {
		if w.Epoch, err = strconv.ParseUint(epoch, 10, 63); err != nil {
			return errs.New(errs.InvalidValue, "X-Writer-Epoch %q is not a whole number", clip(epoch))
		}
	}
	wr.writer = w
	return nil
}

// mix adds a piece of the chunk at hand to its hash; of requests without a key
// nothing is hashed.
func (wr *writing) mix(piece []byte) {
	if wr.hash == nil {
		return
	}
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(piece)))
	_, _ = wr.hash.Write(n[:]) // a hash takes everything
	_, _ = wr.hash.Write(piece)
}

func (wr *writing) mixTexts(texts []string) {
	for _, t := range texts {
		wr.mix([]byte(t))
	}
}

// sum is the hash of the chunk at hand: of its rows as they came, the bad ones
// included, and of what is to be done with them. So a chunk is the same whether bad
// rows stop the request or not, however it was compressed, and whatever became of the
// table meanwhile.
func (wr *writing) sum() uint64 {
	wr.mix([]byte(wr.mode))
	if wr.columns != nil {
		wr.mix([]byte("columns"))
	}
	for _, c := range wr.columns {
		wr.mix([]byte(c))
	}
	if s := wr.hash.Sum64(); s != 0 {
		return s
	}
	return 1 // 0 says that there is none
}

// sequence numbers the chunk at hand; nil when the request does not.
func (wr *writing) sequence() *router.WriterSequence {
	if wr.writer == nil {
		return nil
	}
	seq := *wr.writer
	if seq.Key {
		seq.Hash = wr.sum()
	}
	return &seq
}

// pass ends the chunk at hand, which has its number whether or not it had rows: those
// after it keep theirs.
func (wr *writing) pass() {
	if wr.writer == nil {
		return
	}
	if wr.writer.Key {
		wr.hash.Reset()
	} else {
		wr.answer.LastSeq = new(wr.writer.Seq)
	}
	wr.writer.Seq++
}

// goesOn says whether a request goes on after what buckets say to a chunk: it is to go
// on when rows are bad, and some were. A writer never goes past a number that was not
// taken. A key does: its chunks are all sent again, and one that a bucket refused is
// refused then, too.
func (wr *writing) goesOn(code errs.Code) bool {
	if !wr.goOn || code == errs.IdempotencyKeyReused {
		return false
	}
	if wr.writer != nil && wr.writer.Key && code == errs.OutOfOrderSequence {
		return true
	}
	return (wr.writer == nil || wr.writer.Key) && errs.KindOf(code).HTTP == http.StatusUnprocessableEntity
}

// mark tells the client whether everything it sent had been written before.
func (wr *writing) mark(h http.Header) {
	if wr.answer.Accepted > 0 && wr.answer.Replayed == wr.answer.Accepted {
		h.Set(headerReplayed, "true")
	}
}
