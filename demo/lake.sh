# Sourced by run: the flights move to the lake, and are read in three ways, and by a stock reader (X11, X12, X13).

title "Flights move to the lake, and stay one table (X11)"
say "The lake is Apache Iceberg, here in a folder; it can be S3. A table may be told to go there at any time:"
run "curl -sS -X PATCH --json '{\"ops\":[{\"op\":\"set_properties\",\"properties\":{\"table.datalake.enabled\":\"true\"}}]}' $FLIGHTS -o /dev/null -w '%{http_code}\\n'"
check "the table is changed" "$OUT" 200
say "From now on its rows are there at most three minutes after they were written (table.datalake.freshness). Who cannot wait asks:"
run "millrace lake tier nyc.flights"
check "every flight is in the lake, once" "$(count 'nyc.flights$lake')" 80789

title "Three read paths (X12)"
say "New flights come in while a reader tails the table. (They are those of 1 January again, a year later.)"
awk -F, -v OFS=, 'NR > 1 && ($2 != 1 || $3 != 1) { next } NR > 1 { $1 = 2014; sub("2013", "2014", $19) } { print }' "$DATA/flights.csv" >"$DATA/new.csv"
printf '\n%s$ %s%s\n' "$BOLD" "curl -sN -H 'Accept: text/event-stream' \"$FLIGHTS/changelog?from=latest&columns=carrier,flight,dep_delay\" > $DATA/tail.events &" "$PLAIN"
curl -sN -H 'Accept: text/event-stream' "$MILLRACE_SERVER/v1/databases/nyc/tables/flights/changelog?from=latest&columns=carrier,flight,dep_delay" >"$DATA/tail.events" &
for _ in $(seq 100); do if [ -s "$DATA/tail.events" ]; then break; fi; sleep 0.05; done
run "millrace put nyc.flights --file $DATA/new.csv --null NA"
for _ in $(seq 100); do if [ "$(events tail)" -ge 842 ]; then break; fi; sleep 0.05; done
check "1. the tail: 842 new flights, as they come" "$(events tail)" 842
say "What is in the lake, by the table's name and \$lake; a name with a \$ wants quotes in a shell:"
run "millrace sql 'SELECT COUNT(*), SUM(distance) FROM nyc.flights\$lake'"
check "2. the lake: what was there at its last commit" "$(echo "$OUT" | tail -1 | tr -s ' ')" " 80789 $(awk -F, 'NR > 1 { s += $16 } END { print s }' "$DATA/flights.csv")"
say "And the table by its own name is both as one: the lake, then the log from exactly where the lake ends."
run "millrace sql 'SELECT COUNT(*), SUM(distance) FROM nyc.flights'"
check "3. the union: everything, each flight once" "$(echo "$OUT" | tail -1 | tr -s ' ')" " 81631 $(awk -F, '$16 ~ /^[0-9]+$/ { s += $16 } END { print s }' "$DATA/flights.csv" "$DATA/new.csv")"
say "How far is the lake behind?"
run "millrace lake status nyc.flights"
check "842 flights are still to come" "$(curl -sS "$MILLRACE_SERVER/v1/databases/nyc/tables/flights/lake" | field pending_rows)" 842

title "A table with keys in the lake (X13)"
run "curl -sS -X PATCH --json '{\"ops\":[{\"op\":\"set_properties\",\"properties\":{\"table.datalake.enabled\":\"true\"}}]}' \$MILLRACE_SERVER/v1/databases/nyc/tables/planes -o /dev/null -w '%{http_code}\\n'"
run "millrace lake tier nyc.planes"
say "A plane gets new seats, another one is scrapped. The lake does not know yet, a read of the table does:"
run "curl -sS -X PATCH --json '{\"seats\":151}' \$MILLRACE_SERVER/v1/databases/nyc/tables/planes/rows/N14228"
run "curl -sS -X DELETE \$MILLRACE_SERVER/v1/databases/nyc/tables/planes/rows/N24211"
PLANES="tailnum IN ('N14228', 'N24211')"
run "millrace scan 'nyc.planes\$lake' --columns tailnum,seats --filter \"$PLANES\" --format ndjson"
check "in the lake both are as they were" "$(echo "$OUT" | sort | paste -sd, -)" '{"tailnum":"N14228","seats":149},{"tailnum":"N24211","seats":149}'
run "millrace scan nyc.planes --columns tailnum,seats --filter \"$PLANES\" --format ndjson"
check "the table is up to date" "$OUT" '{"tailnum":"N14228","seats":151}'
say "The next commit deletes two rows of the lake's files by their positions, which every reader of Iceberg understands, and adds one:"
run "millrace lake tier nyc.planes"
check "now the lake says so, too" "$(curl -sS --get "$MILLRACE_SERVER/v1/databases/nyc/tables/planes/scan?tier=lake" -H 'Accept: application/x-ndjson' -d columns=tailnum,seats --data-urlencode "filter=$PLANES")" '{"tailnum":"N14228","seats":151}'

title "A stock reader finds the same tables"
say "The server is an Iceberg REST catalog: pyiceberg, DuckDB and Spark attach to it by its address (docs/guides/lake-readers.md)."
run "curl -sS \$MILLRACE_SERVER/iceberg/v1/namespaces/nyc/tables"
if [ -z "$PYTHON" ] || ! "$PYTHON" -c 'import pyiceberg' 2>/dev/null; then
  say "pyiceberg is not here and could not be installed, so this part is left out. With it: python3 demo/history.py $MILLRACE_SERVER/iceberg"
else
  run "$PYTHON demo/history.py $MILLRACE_SERVER/iceberg"
  check "pyiceberg read them" "$(echo "$OUT" | tail -1)" "done"
fi
