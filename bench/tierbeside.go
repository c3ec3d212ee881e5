package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

const (
	// backlogFreshness is that of the tables that are tiered beside clients. A job begins
	// within it, and gives way to clients as long as it begins within twice of it.
	backlogFreshness = 10 * time.Second
)

// tierBesideClients is the other half of R12: what clients that append lose while another
// table is tiered.
func (b *bench) tierBesideClients(ctx context.Context) error {
	backlog, err := flights()
	if err != nil {
		return err
	}
	n := b.size.TierAppendMiB << 20 / appendBytes
	t := &table{name: "appended_beside", columns: columnsOf(appendSchema), buckets: 16}
	streams := make([]*messages, writers)
	for w := range writers {
		if streams[w], err = encodeStream(putCommand(t), []arrow.RecordBatch{appendBatch(random(w), appendRows)}); err != nil {
			return err
		}
	}
	if err := b.server.create(ctx, t); err != nil {
		return err
	}
	clients, err := b.server.dial(connections)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	var behind *table // the table being tiered; nil: none is
	tables, early := 0, 0
	quiet := func(ctx context.Context) error {
		if behind == nil {
			return nil
		}
		s, err := b.server.lakeStatus(ctx, behind)
		if err != nil {
			return err
		}
		if s.Pending == 0 {
			early++
		}
		last := behind
		behind = nil
		return b.server.tierNow(ctx, last)
	}
	appending := func(ctx context.Context) (float64, int64, error) {
		return float64(n*appendBytes) / 1e6, 0, b.server.putClosedLoop(ctx, clients, streams, n)
	}
	procs := map[string]int{"millrace": b.server.pid()}
	err = b.compare(ctx, &comparison{
		id: "R12", what: fmt.Sprintf("durable log append over DoPut while %d flights are tiered", b.size.TierBacklogRows), disk: true,
		ours: side{name: "with tiering", processes: procs, work: appending, prepare: func(ctx context.Context) error {
			if err := quiet(ctx); err != nil {
				return err
			}
			tables++
			behind = &table{name: fmt.Sprintf("backlog%d", tables), columns: columnsOf(flightSchema), buckets: 1, properties: map[string]string{
				"table.datalake.enabled": "true", "table.datalake.freshness": fmt.Sprintf("%ds", int(backlogFreshness.Seconds())),
			}}
			if err := b.server.create(ctx, behind); err != nil {
				return err
			}
			began := time.Now()
			if err := b.server.loadRows(ctx, behind, backlog, b.size.TierBacklogRows); err != nil {
				return err
			}
			time.Sleep(time.Until(began.Add(backlogFreshness)))
			return nil
		}},
		yard: side{name: "the same without", processes: procs, work: appending, prepare: quiet},
		metrics: []metric{
			{name: "MB/s", unit: "MB/s", target: 0.90, of: func(s *sample, _ bool) float64 { return s.perSecond() }},
			{name: "server CPU", unit: "s", of: func(s *sample, _ bool) float64 { return s.CPU["millrace"] }},
		},
	})
	if err == nil {
		err = quiet(ctx)
	}
	if early > 0 {
		b.note("R12: %d of %d backlogs were in the lake before their run ended", early, tables)
	}
	return err
}

// lakeStatus is what the server says of a table's lake table.
type lakeStatus struct {
	Location string `json:"location"`
	Pending  int64  `json:"pending_rows"`
	Totals   struct {
		Rows  int64 `json:"rows"`
		Files int64 `json:"data_files"`
		Bytes int64 `json:"bytes"`
	} `json:"totals"`
}

func (s *server) lakeStatus(ctx context.Context, t *table) (*lakeStatus, error) {
	body, err := s.ask(ctx, http.MethodGet, t.path()+"/lake", nil)
	if err != nil {
		return nil, err
	}
	out := &lakeStatus{}
	return out, json.Unmarshal(body, out)
}

// tierNow returns when all rows of a table are in the lake.
func (s *server) tierNow(ctx context.Context, t *table) error {
	return s.call(ctx, http.MethodPost, t.path()+"/lake/tier?timeout=120s", nil)
}
