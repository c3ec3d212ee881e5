# Sourced by run: the tables, and the data in them.

title "Tables: a log of flights, and four dimensions with keys"

create() { curl -fsS -o /dev/null --json "$1" "$MILLRACE_SERVER/v1/databases/nyc/tables"; }

run $'curl -sS --json \'{"name":"nyc"}\' $MILLRACE_SERVER/v1/databases'

say "The log table of flights: a row for each departure, in buckets by airline."
run "curl -sS --json '"'{"name":"flights","buckets":4,"bucket_key":["carrier"],"columns":[
  {"name":"year","type":"INT"},{"name":"month","type":"INT"},{"name":"day","type":"INT"},
  {"name":"dep_time","type":"INT"},{"name":"sched_dep_time","type":"INT"},{"name":"dep_delay","type":"INT"},
  {"name":"arr_time","type":"INT"},{"name":"sched_arr_time","type":"INT"},{"name":"arr_delay","type":"INT"},
  {"name":"carrier","type":"STRING"},{"name":"flight","type":"INT"},{"name":"tailnum","type":"STRING"},
  {"name":"origin","type":"STRING"},{"name":"dest","type":"STRING"},{"name":"air_time","type":"INT"},
  {"name":"distance","type":"INT"},{"name":"hour","type":"INT"},{"name":"minute","type":"INT"},
  {"name":"time_hour","type":"TIMESTAMP_LTZ(3)"}]}'"' -o /dev/null -w '%{http_code}\\n' \$MILLRACE_SERVER/v1/databases/nyc/tables"
check "the table is made" "$OUT" 201

say "The dimensions are keyed tables: they hold the latest row per key, and every change is in their changelog."
create '{"name":"airlines","primary_key":["carrier"],"columns":[{"name":"carrier","type":"STRING"},{"name":"name","type":"STRING"}]}'
create '{"name":"airports","primary_key":["faa"],"buckets":2,"columns":[{"name":"faa","type":"STRING"},{"name":"name","type":"STRING"},
  {"name":"lat","type":"DOUBLE"},{"name":"lon","type":"DOUBLE"},{"name":"alt","type":"INT"},{"name":"tz","type":"INT"},{"name":"dst","type":"STRING"},{"name":"tzone","type":"STRING"}]}'
create '{"name":"planes","primary_key":["tailnum"],"buckets":4,"columns":[{"name":"tailnum","type":"STRING"},{"name":"built","type":"INT"},
  {"name":"type","type":"STRING"},{"name":"manufacturer","type":"STRING"},{"name":"model","type":"STRING"},{"name":"engines","type":"INT"},
  {"name":"seats","type":"INT"},{"name":"speed","type":"INT"},{"name":"engine","type":"STRING"}]}'
create '{"name":"weather","primary_key":["origin","time_hour"],"buckets":4,"bucket_key":["origin"],"columns":[{"name":"origin","type":"STRING"},
  {"name":"year","type":"INT"},{"name":"month","type":"INT"},{"name":"day","type":"INT"},{"name":"hour","type":"INT"},{"name":"temp","type":"DOUBLE"},
  {"name":"dewp","type":"DOUBLE"},{"name":"humid","type":"DOUBLE"},{"name":"wind_dir","type":"INT"},{"name":"wind_speed","type":"DOUBLE"},
  {"name":"wind_gust","type":"DOUBLE"},{"name":"precip","type":"DOUBLE"},{"name":"pressure","type":"DOUBLE"},{"name":"visib","type":"DOUBLE"},
  {"name":"time_hour","type":"TIMESTAMP_LTZ(3)"}]}'

title "Load the dimensions with the command line"
run 'millrace put nyc.airlines --file demo/data/airlines.csv'
run 'millrace put nyc.airports --file demo/data/airports.csv --null NA'
say "A column of the file may have another name than the table's:"
run "millrace put nyc.planes --file demo/data/planes.csv --null NA --rename 'year=built'"
run 'gunzip -c demo/data/weather.csv.gz > '"$DATA"'/weather.csv && millrace put nyc.weather --file '"$DATA"'/weather.csv --null NA'
check "16 airlines" "$(count nyc.airlines)" 16
check "1,458 airports" "$(count nyc.airports)" 1458
check "3,322 planes" "$(count nyc.planes)" 3322
check "26,115 hours of weather" "$(count nyc.weather)" 26115
check "NA is NULL" "$(count nyc.planes 'speed IS NULL')" 3299
