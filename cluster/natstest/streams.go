package natstest

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// RemoveStreams removes the streams of the account that lose says of, and all that is in
// them; it says how many those were.
func (s *Servers) RemoveStreams(ctx context.Context, lose func(name string) bool) (int, error) {
	nc, err := nats.Connect(s.URLs())
	if err != nil {
		return 0, fmt.Errorf("natstest: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, fmt.Errorf("natstest: %w", err)
	}
	var names []string
	all := js.StreamNames(ctx)
	for name := range all.Name() {
		if lose(name) {
			names = append(names, name)
		}
	}
	if err := all.Err(); err != nil {
		return 0, fmt.Errorf("natstest: %w", err)
	}
	for _, name := range names {
		if err := js.DeleteStream(ctx, name); err != nil {
			return 0, fmt.Errorf("natstest: %w", err)
		}
	}
	return len(names), nil
}
