package flightsvc

import (
	"context"
	"encoding/json"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
)

// Bounds of a FlightInfo.
const (
	maxEndpoints = 1024
	maxInfoBytes = 3 << 20
)

// GetFlightInfo plans a read: an endpoint a bucket, all of one snapshot, which is
// kept until the tickets expire.
func (s *Service) GetFlightInfo(ctx context.Context, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	cmd, err := parseDescriptor(d)
	if err != nil {
		return nil, err
	}
	plan, err := s.plan(ctx, cmd)
	if err != nil {
		return nil, err
	}
	defer plan.Close()
	rows, bytes, err := s.o.Router.Size(ctx, plan)
	if err != nil {
		return nil, err
	}
	if err := s.o.Router.Hold(ctx, plan, router.TicketTTL, router.TicketTTL); err != nil {
		return nil, err
	}
	partitions, buckets := plan.Skipped()
	snapshot, lag := plan.LakeSnapshot()
	info := &flight.FlightInfo{
		Schema: schemaBytes(plan.Schema), FlightDescriptor: d, TotalRecords: rows, TotalBytes: bytes,
		AppMetadata: appendJSON(nil, infoMeta{TableID: plan.Table.ID, SchemaID: plan.Table.Schema.ID, Stats: infoStats{
			Buckets: len(plan.Parts), BucketsSkipped: buckets, PartitionsSkipped: partitions, Rows: known(rows), Bytes: known(bytes), LakeSnapshot: snapshot, LakeLagMS: lag,
		}}),
	}
	if err := s.addEndpoints(info, plan); err != nil {
		s.o.Router.LetGo(plan)
		return nil, err
	}
	s.metrics.ticketsGiven.Add(float64(len(info.Endpoint)))
	return info, nil
}

// infoMeta is the app_metadata of a FlightInfo.
type infoMeta struct {
	TableID  millrace.TableID  `json:"table_id"`
	SchemaID millrace.SchemaID `json:"schema_id"`
	Stats    infoStats         `json:"stats"`
}

type infoStats struct {
	Buckets           int    `json:"buckets"`
	BucketsSkipped    int    `json:"buckets_skipped"` // that the request or its filter rule out
	PartitionsSkipped int    `json:"partitions_skipped,omitempty"`
	Rows              *int64 `json:"rows"`
	Bytes             *int64 `json:"bytes"` // stored, of all columns
	// Of a read of the lake: its snapshot, and how far that lags behind the logs.
	LakeSnapshot int64  `json:"lake_snapshot,string,omitempty"`
	LakeLagMS    *int64 `json:"lake_lag_ms,omitempty"`
}

func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

// addEndpoints cuts a plan into endpoints of a bucket each, or of several when
// there would be too many or the info too long.
func (s *Service) addEndpoints(info *flight.FlightInfo, plan *router.Plan) error {
	expires := s.o.Clock.Now().Add(router.TicketTTL)
	for n := maxEndpoints; ; n /= 2 {
		info.Endpoint = info.Endpoint[:0]
		for _, part := range plan.Split(n) {
			ep, err := s.endpoint(part, expires)
			if err != nil {
				return err
			}
			info.Endpoint = append(info.Endpoint, ep)
		}
		size := proto.Size(info)
		if size > maxInfoBytes { // where each bucket begins and ends is also told by DoGet
			forgetOffsets(info)
			size = proto.Size(info)
		}
		if size <= maxInfoBytes {
			return nil
		}
		if len(info.Endpoint) == 1 {
			return errs.New(errs.TooLarge, "the answer would have %d bytes; at most %d are allowed: name fewer columns or buckets, or a shorter filter", size, maxInfoBytes)
		}
	}
}

func (s *Service) endpoint(plan *router.Plan, expires time.Time) (*flight.FlightEndpoint, error) {
	ticket, err := s.o.Router.Ticket(plan, expires)
	if err != nil {
		return nil, err
	}
	return &flight.FlightEndpoint{
		Ticket: &flight.Ticket{Ticket: []byte(ticket)}, Location: s.locations(),
		ExpirationTime: timestamppb.New(expires), AppMetadata: endpointMeta(plan.Parts),
	}, nil
}

// forgetOffsets takes the offsets out of the endpoints of several buckets: of a table
// with thousands of partitions they are more than the tickets.
func forgetOffsets(info *flight.FlightInfo) {
	for _, ep := range info.Endpoint {
		var several struct {
			BucketKey *string                    `json:"bucket_key"`
			Offsets   map[string]json.RawMessage `json:"offsets"`
			Files     int                        `json:"files"`
		}
		if err := json.Unmarshal(ep.AppMetadata, &several); err == nil && several.Offsets != nil {
			ep.AppMetadata = appendJSON(nil, struct {
				BucketKey *string `json:"bucket_key"`
				Buckets   int     `json:"buckets"`
				Files     int     `json:"files,omitempty"`
			}{Buckets: len(several.Offsets), Files: several.Files})
		}
	}
}

// locations are where tickets are good: here, unless an address is advertised.
func (s *Service) locations() []*flight.Location {
	if s.o.AdvertiseURI == "" {
		return nil
	}
	return []*flight.Location{{Uri: s.o.AdvertiseURI}, {Uri: flight.LocationReuseConnection}}
}

// endpointRange is what an endpoint covers of a bucket. Start is null for keyed
// state and rows of the lake alone, which stand for End; End is null when the read goes on for ever.
type endpointRange struct {
	Start *millrace.Offset `json:"start"`
	End   *millrace.Offset `json:"end"`
}

func rangeOf(p *router.Part) endpointRange {
	var r endpointRange
	if !p.State && !p.LakeOnly {
		r.Start = &p.Start
	}
	if p.End != millrace.NoOffset {
		r.End = &p.End
	}
	return r
}

// nameOf is the name of a part's partition, null where there is none.
func nameOf(p *router.Part) *string {
	if p.Partition == "" {
		return nil
	}
	return &p.Partition
}

// endpointMeta is the app_metadata of an endpoint.
func endpointMeta(parts []router.Part) []byte {
	if len(parts) == 1 && parts[0].Bucket.Bucket == router.NoBucket {
		p := &parts[0]
		return appendJSON(nil, struct {
			BucketKey *string `json:"bucket_key"`
			Partition *string `json:"partition"`
			Files     int     `json:"files"`
		}{Partition: nameOf(p), Files: p.Files - p.File})
	}
	if len(parts) == 1 {
		p := &parts[0]
		return appendJSON(nil, struct {
			BucketKey string  `json:"bucket_key"`
			Partition *string `json:"partition"`
			Bucket    uint16  `json:"bucket"`
			endpointRange
		}{BucketKey: p.Key, Partition: nameOf(p), Bucket: p.Bucket.Bucket, endpointRange: rangeOf(p)})
	}
	several := struct {
		BucketKey *string                  `json:"bucket_key"`
		Offsets   map[string]endpointRange `json:"offsets"`
		Files     int                      `json:"files,omitempty"` // of no one bucket
	}{Offsets: make(map[string]endpointRange, len(parts))}
	for i := range parts {
		if p := &parts[i]; p.Bucket.Bucket == router.NoBucket {
			several.Files += p.Files - p.File
		} else {
			several.Offsets[p.Key] = rangeOf(p)
		}
	}
	return appendJSON(nil, several)
}

// GetSchema is the schema of what a descriptor reads, writes or answers.
func (s *Service) GetSchema(ctx context.Context, d *flight.FlightDescriptor) (*flight.SchemaResult, error) {
	cmd, err := parseDescriptor(d)
	if err != nil {
		return nil, err
	}
	schema, err := s.schemaOf(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return &flight.SchemaResult{Schema: schemaBytes(schema)}, nil
}

func (s *Service) schemaOf(ctx context.Context, cmd *command) (*arrow.Schema, error) {
	switch cmd.op {
	case opPut:
		t, err := s.writeTable(ctx, cmd.path, cmd.put.TableID)
		if err != nil {
			return nil, err
		}
		return row.TableArrowSchema(t, t.Schema.Columns), nil
	case opLookup, opPrefixLookup:
		a, err := s.ask(ctx, cmd)
		if err != nil {
			return nil, err
		}
		return a.schema, nil
	}
	plan, err := s.plan(ctx, cmd)
	if err != nil {
		return nil, err
	}
	defer plan.Close()
	return plan.Schema, nil
}

// schemaBytes is a schema as FlightInfo and SchemaResult have it.
func schemaBytes(schema *arrow.Schema) []byte {
	return flight.SerializeSchema(schema, memory.DefaultAllocator)
}
