package shardrpc

import (
	"context"
	"errors"

	millrace "github.com/millrace/millrace"
)

// Transport carries small calls to whoever owns a shard.
type Transport interface {
	// Call sends a request to the owner of a shard and waits for its answer. ErrNobody
	// says that there was nobody to take it; with any other error it may have been taken.
	Call(ctx context.Context, id millrace.ShardID, request []byte) ([]byte, error)
}

// ErrNobody is the error of a call that nobody took.
var ErrNobody = errors.New("nobody takes calls for the shard")

// Processes is the transport between servers of one process: for tests, and to measure
// what the calls themselves cost.
type Processes struct {
	// Owner is the server that owns a shard; nil: none does.
	Owner func(millrace.ShardID) *Server
}

// Call implements Transport.
func (p Processes) Call(ctx context.Context, id millrace.ShardID, request []byte) ([]byte, error) {
	s := p.Owner(id)
	if s == nil {
		return nil, ErrNobody
	}
	return s.Answer(ctx, id, request), nil
}
