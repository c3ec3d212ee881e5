package server

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// registry knows what was registered with it, also what has no value yet, so that
// docs/metrics.md can be made of it.
type registry struct {
	*prometheus.Registry

	mu         sync.Mutex
	registered []registration
}

// registration is a collector with the labels that all of its metrics get besides.
type registration struct {
	prometheus.Collector

	labels prometheus.Labels
}

// Register is part of prometheus.Registerer.
func (r *registry) Register(c prometheus.Collector) error { return labelled{r, nil}.Register(c) }

// MustRegister is part of prometheus.Registerer.
func (r *registry) MustRegister(cs ...prometheus.Collector) { labelled{r, nil}.MustRegister(cs...) }

// with registers with labels besides: for what there are several of in a process.
func (r *registry) with(labels prometheus.Labels) prometheus.Registerer { return labelled{r, labels} }

// all are the registrations in their order.
func (r *registry) all() []registration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.registered)
}

// labelled is a registry with labels.
type labelled struct {
	r      *registry
	labels prometheus.Labels
}

// Register is part of prometheus.Registerer.
func (l labelled) Register(c prometheus.Collector) error {
	err := prometheus.WrapRegistererWith(l.labels, l.r.Registry).Register(c)
	if err == nil {
		l.r.mu.Lock()
		defer l.r.mu.Unlock()
		l.r.registered = append(l.r.registered, registration{c, l.labels})
	}
	return err
}

// MustRegister is part of prometheus.Registerer.
func (l labelled) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := l.Register(c); err != nil {
			panic(err) // two of a name: the code is wrong
		}
	}
}

// Unregister is part of prometheus.Registerer.
func (l labelled) Unregister(c prometheus.Collector) bool {
	return prometheus.WrapRegistererWith(l.labels, l.r.Registry).Unregister(c)
}
