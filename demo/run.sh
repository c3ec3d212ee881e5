#!/usr/bin/env bash
# The demo: builds Millrace, starts it, loads real flights and shows what it does, one copyable command after another,
# checking each result. The server is left running.
#
#   demo/run.sh           everything, then leaves the server running
#   demo/run.sh --check   the same, and stops the server at the end (for CI)
#   demo/run.sh stop      stops the server of an earlier run
#
# Settings: DEMO_DATA (its folder, demo-data), MILLRACE_BIN (a binary that is built already), DEMO_PYTHON (a Python that
# has pyarrow, or none to leave that part out).
set -euo pipefail
cd "$(dirname "$0")/.."

DATA=${DEMO_DATA:-demo-data}
BIN=${MILLRACE_BIN:-bin/millrace}
CHECK=
case "${1:-}" in
'' | stop) ;;
--check) CHECK=1 ;;
*) echo "usage: demo/run.sh [--check | stop]" >&2; exit 2 ;;
esac

. demo/lib.sh

stop_earlier
if [ "${1:-}" = stop ]; then exit 0; fi
trap 'ended $?' EXIT

title "Build and start"
if [ -z "${MILLRACE_BIN:-}" ]; then
  run 'CGO_ENABLED=0 go build -o bin/millrace ./cmd/millrace'
fi
rm -rf "$DATA"
start_server
say "One process, one folder ($DATA), nothing else. These two lines make every command below work in your shell:"
echo
echo "    export MILLRACE_SERVER=$MILLRACE_SERVER"
echo "    export PATH=\$PWD/$(dirname "$BIN"):\$PATH"
PATH="$(cd "$(dirname "$BIN")" && pwd):$PATH"

. demo/load.sh
. demo/flights.sh
. demo/retail.sh
. demo/python.sh

title "All $CHECKS checks hold. Go on by yourself"
cat <<END
The server is running (process $SERVER_PID, log $DATA/server.log):

    export MILLRACE_SERVER=$MILLRACE_SERVER
    bin/millrace status
    bin/millrace scan nyc.flights --columns carrier,flight,origin,dest,dep_delay --filter "dest = 'HNL'" --limit 10
    bin/millrace tail nyc.flights                    # then write from another terminal
    curl -N -H 'Accept: text/event-stream' "\$MILLRACE_SERVER/v1/databases/nyc/tables/airlines/changelog?from=full"

The API's document: $MILLRACE_SERVER/docs    Guides: docs/guides/curl.md, docs/guides/pyarrow.md (Flight at $FLIGHT)
Kill it with kill -9 if you like and start it again: nothing that was acknowledged is lost.

    bin/millrace serve --data-dir $DATA              # starts it again
    demo/run.sh stop                                 # stops it
END
