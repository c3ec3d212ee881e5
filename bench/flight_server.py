"""A yardstick of R4: pyarrow's Flight server with the batches of a Millrace table in memory.

Arguments: the address of Millrace, then tickets in base64. Prints its own address and
serves what the tickets gave until it is ended.
"""

import base64
import signal
import sys

import pyarrow
import pyarrow.flight as flight


class MemoryServer(flight.FlightServerBase):
    def __init__(self, schema, batches):
        super().__init__("grpc://127.0.0.1:0")
        self.schema, self.batches = schema, batches

    def do_get(self, context, ticket):
        # All in C++ from here: no Python runs between batches.
        return flight.RecordBatchStream(pyarrow.RecordBatchReader.from_batches(self.schema, self.batches))


def main():
    source = flight.connect("grpc://" + sys.argv[1])
    schema, batches = None, []
    for ticket in sys.argv[2:]:
        reader = source.do_get(flight.Ticket(base64.b64decode(ticket)))
        schema = reader.schema
        batches += [c.data for c in reader if c.data is not None and c.data.num_rows > 0]
    server = MemoryServer(schema, batches)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(f"127.0.0.1:{server.port}", flush=True)
    server.serve()


main()
