# Sourced by run: what the flights show (X4, X6, X8, X9 of the worked examples, on real data).

FLIGHTS="\$MILLRACE_SERVER/v1/databases/nyc/tables/flights"

title "Write a stream, and read it from the beginning, from now, and from a time (X8)"
gunzip -c demo/data/flights-2013q1.csv.gz >"$DATA/flights.csv"
awk -F, 'NR == 1 || $2 == 1' "$DATA/flights.csv" >"$DATA/january.csv"
awk -F, 'NR == 1 || $2 > 1' "$DATA/flights.csv" >"$DATA/later.csv"
run "millrace put nyc.flights --file $DATA/january.csv --null NA"
check "January has 27,004 flights" "$(count nyc.flights)" 27004
MIDDLE=$(date -u +%Y-%m-%dT%H:%M:%S.%3NZ)

say "Two readers follow the table while February and March are written; one from the beginning, one from now on:"
for from in earliest latest; do
  printf '\n%s$ %s%s\n' "$BOLD" "curl -sN -H 'Accept: text/event-stream' \"$FLIGHTS/changelog?from=$from&columns=carrier,flight,dep_delay\" > $DATA/$from.events &" "$PLAIN"
  curl -sN -H 'Accept: text/event-stream' "$MILLRACE_SERVER/v1/databases/nyc/tables/flights/changelog?from=$from&columns=carrier,flight,dep_delay" >"$DATA/$from.events" &
done
for _ in $(seq 100); do # both stand where they begin: the first block of a stream has its position
  if [ -s "$DATA/earliest.events" ] && [ -s "$DATA/latest.events" ]; then break; fi
  sleep 0.05
done
run "millrace put nyc.flights --file $DATA/later.csv --null NA"
LOAD_MS=$MS
events() { grep -c '^data:' "$DATA/$1.events" || true; }
for _ in $(seq 300); do
  if [ "$(events earliest)" -ge 80789 ] && [ "$(events latest)" -ge 53785 ]; then break; fi
  sleep 0.1
done
check "all flights are there" "$(count nyc.flights)" 80789
check "the reader from earliest saw every flight once" "$(events earliest)" 80789
check "the reader from latest saw what came after it" "$(events latest)" 53785
say "A position can be a time. What was written since $MIDDLE?"
run "curl -sS --get $FLIGHTS/changelog -H 'Accept: application/x-ndjson' -d from=$MIDDLE -d until=latest -d columns=flight | wc -l"
check "from a time: the first record at or after it" "$((OUT))" 53785
printf '%s53,785 flights acknowledged in %d ms, each on disk and seen live by two readers.%s\n' "$DIM" "$LOAD_MS" "$PLAIN"

title "Wide rows, narrow reads (X4)"
say "All 19 columns of all flights as an Arrow stream, and two of them:"
run "curl -sS $FLIGHTS/scan -H 'Accept: application/vnd.apache.arrow.stream' -o /dev/null -w '%{size_download} bytes in %{time_total} s\\n'"
WIDE=${OUT%% *}
run "curl -sS '$(eval echo "$FLIGHTS")/scan?columns=dep_delay,distance' -H 'Accept: application/vnd.apache.arrow.stream' -o /dev/null -w '%{size_download} bytes in %{time_total} s\\n'"
NARROW=${OUT%% *}
printf '%s%d of %d bytes: %d %%%s\n' "$DIM" "$NARROW" "$WIDE" $((100 * NARROW / WIDE)) "$PLAIN"
check_true "two of nineteen columns cost at most 12 % of the bytes" [ $((NARROW * 100)) -le $((WIDE * 12)) ]

say "A filter is SQL's and exact; the command line prints a table:"
run "millrace scan nyc.flights --columns carrier,flight,origin,dest,dep_delay --filter \"dep_delay > 720 AND origin = 'JFK'\" --format table"
check "as many flights left more than twelve hours late as the file has" "$(count nyc.flights 'dep_delay > 720')" "$(awk -F, 'NR > 1 && $6 != "NA" && $6 > 720' "$DATA/flights.csv" | wc -l | tr -d ' ')"
check "as many never left as the file has: their departure is NULL" "$(count nyc.flights 'dep_time IS NULL')" "$(awk -F, 'NR > 1 && $4 == "NA"' "$DATA/flights.csv" | wc -l | tr -d ' ')"

title "A point read against a scan (X6)"
say "By its key, a row comes from one bucket; the cost does not grow with the table:"
run 'curl -sS $MILLRACE_SERVER/v1/databases/nyc/tables/planes/rows/N14228'
BY_KEY=$OUT
run "millrace get nyc.planes tailnum=N14228"
run "curl -sS --get \$MILLRACE_SERVER/v1/databases/nyc/tables/planes/scan -H 'Accept: application/x-ndjson' --data-urlencode \"filter=tailnum = 'N14228'\""
check "the scan finds the same row" "$OUT" "$BY_KEY"
TIMES=$(for _ in $(seq 50); do printf 'url = "%s/v1/databases/nyc/tables/planes/rows/N14228"\noutput = /dev/null\n' "$MILLRACE_SERVER"; done | curl -sS -K - -w '%{time_total}\n' | sort -n)
printf '%s50 lookups on one connection: median %s s%s\n' "$DIM" "$(echo "$TIMES" | sed -n 25p)" "$PLAIN"

title "Enrich a stream without a cache (X9)"
say "The latest flights to Honolulu, each with its plane and airline, looked up in batches:"
curl -sS --get "$MILLRACE_SERVER/v1/databases/nyc/tables/flights/scan" -H 'Accept: application/x-ndjson' \
  -d columns=carrier,flight,tailnum,time_hour --data-urlencode "filter=dest = 'HNL' AND month = 3 AND day >= 29 AND tailnum IS NOT NULL" >"$DATA/hnl.ndjson"
keys() { sed 's/.*"'"$1"'":\("[^"]*"\).*/{"'"$1"'":\1}/' "$DATA/hnl.ndjson" | paste -sd, -; }
cat "$DATA/hnl.ndjson"
run "curl -sS --json '{\"keys\":[$(keys tailnum)],\"columns\":[\"manufacturer\",\"model\",\"seats\"]}' \$MILLRACE_SERVER/v1/databases/nyc/tables/planes/lookup"
run "curl -sS --json '{\"keys\":[$(keys carrier)],\"columns\":[\"name\"]}' \$MILLRACE_SERVER/v1/databases/nyc/tables/airlines/lookup"
check "every flight found its airline" "$(echo "$OUT" | grep -o '"name"' | wc -l | tr -d ' ')" "$(wc -l <"$DATA/hnl.ndjson" | tr -d ' ')"
