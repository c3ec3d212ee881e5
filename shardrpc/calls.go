package shardrpc

import (
	"encoding/binary"
	"time"
)

// A call is: version · kind · what is left of its time in milliseconds, 0 when it has no
// end · what the kind has. An answer is: a status · what the status has.

const callVersion = 1

// kind is what a call asks for.
type kind uint8

const (
	kindLook kind = iota + 1
	kindRehold
	kindLetGo
	kindLookup
	kindPrefixes
	kindWrite
	kindSchemas
	kindEnd
	kindTell
	kindTiered
	kindStatus
	kindWhere // the address of the process, for HTTP
	kindLast
)

// String is the kind as metrics and traces name it.
func (k kind) String() string {
	names := [...]string{
		kindLook: "look", kindRehold: "rehold", kindLetGo: "let_go", kindLookup: "lookup", kindPrefixes: "prefixes", kindWrite: "write",
		kindSchemas: "schemas", kindEnd: "end", kindTell: "tell", kindTiered: "tiered", kindStatus: "status", kindWhere: "where",
	}
	if k == 0 || int(k) >= len(names) {
		return "unknown"
	}
	return names[k]
}

// Statuses of answers.
const (
	statusOK     = 0 // what the kind has
	statusError  = 1 // an error
	statusByHTTP = 2 // the answer is too long for this way: ask by HTTP
	statusTable  = 3 // a write has to say what its table is
)

// MaxSmall is the longest call that goes by Transport; longer ones go by HTTP.
const MaxSmall = 256 << 10

// maxSmallAnswer is the longest answer of a Transport: NATS takes 1 MiB by default.
const maxSmallAnswer = 768 << 10

// maxTimeout bounds the time a call says it has.
const maxTimeout = 24 * time.Hour

func appendHead(b []byte, k kind, left time.Duration) []byte {
	b = append(b, callVersion, byte(k))
	ms := uint64(0)
	if left > 0 {
		ms = uint64(max(1, left.Milliseconds()))
	}
	return binary.AppendUvarint(b, ms)
}

// head reads the head of a call.
func (d *decoder) head() (kind, time.Duration) {
	if len(d.b) < 2 || d.b[0] != callVersion {
		d.fail()
		return 0, 0
	}
	k := kind(d.b[1])
	d.b = d.b[2:]
	left := time.Duration(min(d.uint(), uint64(maxTimeout.Milliseconds()))) * time.Millisecond
	if k == 0 || k >= kindLast {
		d.fail()
	}
	return k, left
}
