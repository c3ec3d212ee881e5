"""The client of R4: reads tickets with stock pyarrow, as told on standard input.

Prints its version, then for each line {"server", "tickets", "repeat"} the bytes read.
"""

import base64
import json
import sys

import pyarrow
import pyarrow.flight as flight

print(pyarrow.__version__, flush=True)
connections = {}
for line in sys.stdin:
    job = json.loads(line)
    server = job["server"]
    if server not in connections:
        connections[server] = flight.connect("grpc://" + server)
    read = 0
    for _ in range(job["repeat"]):
        for ticket in job["tickets"]:
            for chunk in connections[server].do_get(flight.Ticket(base64.b64decode(ticket))):
                if chunk.data is not None:
                    read += chunk.data.nbytes
    print(read, flush=True)
