package flightsvc

import (
	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row/arrowrow"
)

// dataReceiver is the receiving half of a stream.
type dataReceiver interface {
	Recv() (*flight.FlightData, error)
}

// receiveOpening reads what a stream of a client begins with: its command and a
// decoder of its batches. The client has StallTimeout for it.
func (c *call) receiveOpening(in dataReceiver) (*command, *flight.FlightData, error) {
	c.startWaiting()
	defer c.stopWaiting()
	c.idle.Store(true)
	defer c.idle.Store(false)
	fd, err := in.Recv()
	if ended(err) {
		return nil, nil, errs.New(errs.InvalidRequest, "the stream ended before it began: its first message has a descriptor and a schema")
	}
	if err != nil {
		return nil, nil, err
	}
	cmd, err := parseDescriptor(fd.FlightDescriptor)
	if err != nil {
		return nil, nil, err
	}
	for len(fd.DataHeader) == 0 { // the schema may come after
		if fd, err = in.Recv(); ended(err) {
			return nil, nil, errs.New(errs.InvalidRequest, "the stream ended before its schema came")
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return cmd, fd, nil
}

// openDecoder makes the decoder of a stream that begins with a schema.
func openDecoder(first *flight.FlightData) (*arrowrow.Decoder, error) {
	return arrowrow.NewDecoder(first.DataHeader, arrowrow.Limits{})
}
