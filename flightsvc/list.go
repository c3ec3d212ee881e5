package flightsvc

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/flight"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

// ListFlights lists the tables whose "database.table" begins with the criteria's
// expression. Their tickets are scans in JSON, which hold nothing.
func (s *Service) ListFlights(c *flight.Criteria, stream flight.FlightService_ListFlightsServer) error {
	prefix := string(c.GetExpression())
	var found []*millrace.Table
	for _, t := range s.o.Catalog.AllTables(stream.Context()) {
		if strings.HasPrefix(t.Path.String(), prefix) {
			found = append(found, t)
		}
	}
	slices.SortFunc(found, func(a, b *millrace.Table) int { return strings.Compare(a.Path.String(), b.Path.String()) })
	for _, t := range found {
		if err := stream.Send(s.listed(stream.Context(), t)); err != nil {
			return err
		}
	}
	return nil
}

// listed describes a table without planning a read of it.
func (s *Service) listed(ctx context.Context, t *millrace.Table) *flight.FlightInfo {
	info := &flight.FlightInfo{
		Schema:           schemaBytes(row.TableArrowSchema(t, t.Schema.Columns)),
		FlightDescriptor: &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{t.Path.Database, t.Path.Table}},
		TotalBytes:       -1,
		AppMetadata:      appendJSON(nil, map[string]any{"table_id": t.ID, "schema_id": t.Schema.ID}),
	}
	if buckets, _, err := s.o.Router.Buckets(ctx, t, "", math.MaxInt); err != nil {
		info.TotalRecords = -1 // a shard is damaged; reading the table says so
	} else {
		for _, b := range buckets {
			info.TotalRecords += b.Rows
		}
	}
	ticket := appendJSON(nil, map[string]any{"op": opScan, "table": t.Path.String(), "table_id": t.ID})
	info.Endpoint = []*flight.FlightEndpoint{{Ticket: &flight.Ticket{Ticket: ticket}, Location: s.locations()}}
	return info
}

// PollFlightInfo is not offered: plans are made at once.
func (s *Service) PollFlightInfo(context.Context, *flight.FlightDescriptor) (*flight.PollInfo, error) {
	return nil, errs.New(errs.NotImplemented, "plans are made at once: call GetFlightInfo")
}
