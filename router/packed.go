package router

import (
	"bytes"
	"io"

	"github.com/klauspost/compress/flate"

	"github.com/millrace/millrace/errs"
)

// What tickets and page tokens carry names each bucket, in numbers that resemble
// each other: thousands of them are more than a signature takes, unless deflated.
const (
	packFrom    = 1 << 10
	maxUnpacked = 16 << 20
	packMark    = 'z' // comes before deflated text, where JSON has '{'
)

// pack makes a JSON object shorter when it is long.
func pack(b []byte) []byte {
	if len(b) < packFrom {
		return b
	}
	out := bytes.NewBuffer([]byte{packMark})
	if err := flate.StatelessDeflate(out, b, true, nil); err != nil {
		panic(err) // a buffer takes everything
	}
	if out.Len() >= len(b) {
		return b
	}
	return out.Bytes()
}

// unpack is what pack was given.
func unpack(b []byte) ([]byte, error) {
	if len(b) == 0 || b[0] != packMark {
		return b, nil
	}
	out, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(b[1:])), maxUnpacked+1))
	if err != nil || len(out) > maxUnpacked {
		return nil, errs.New(errs.InvalidValue, "the ticket or page token does not unpack")
	}
	return out, nil
}
