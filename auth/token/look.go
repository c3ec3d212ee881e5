package token

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Seen is what a source gives at the moment, for people.
type Seen struct {
	// Keys are the names of the keys, each with its algorithm.
	Keys []string
	// Ignored says why others were left out, a line each.
	Ignored []string
}

// Look reads the source once.
func (s Source) Look(ctx context.Context) (Seen, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	got, err := s.read(ctx, "")
	if err != nil {
		return Seen{}, err
	}
	out := Seen{Ignored: got.ignored}
	for _, kid := range slices.Sorted(maps.Keys(got.keys)) {
		out.Keys = append(out.Keys, fmt.Sprintf("%s (%s)", kid, got.keys[kid].alg))
	}
	return out, nil
}
