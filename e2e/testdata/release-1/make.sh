#!/usr/bin/env bash
# How data.tar.gz was made: the data directory of a server of the first release (commit
# c27b7d3) after kill -9, and what that server answered before. Its storage took its time
# from 80 years ahead, so that retention never reaches the records. It is not made again:
# every later release reads what the first one wrote.
#
#   usage: make.sh <binary of the first release> <folder to work in>
set -eu
BIN=$1 W=$2; D=$W/data; mkdir -p $D $W/answers
start() { rm -f $D/addresses.json; $BIN serve --http-addr 127.0.0.1:0 --flight-addr 127.0.0.1:0 --data-dir $D >$W/log 2>&1 & PID=$!
 for i in $(seq 200); do [ -f $D/addresses.json ] && break; sleep 0.05; done
 B=$(python3 -c "import json;a=json.load(open('$D/addresses.json'));print('http://'+a.get('http',a.get('HTTP')))")
 for i in $(seq 200); do curl -sf $B/readyz >/dev/null && break; sleep 0.05; done; }
api() { curl -sS --fail-with-body -X "$1" "$B$2" -H "Content-Type: ${4:-application/json}" ${3:+--data-binary "$3"}; echo; }
start
api POST /v1/databases '{"name":"shop"}'
api POST /v1/databases/shop/tables '{"name":"events","buckets":2,"properties":{"owner":"sales"},"columns":[
 {"name":"id","type":"BIGINT","nullable":false},{"name":"b","type":"BOOLEAN"},{"name":"t","type":"TINYINT"},{"name":"s","type":"SMALLINT"},{"name":"i","type":"INT"},
 {"name":"f","type":"FLOAT"},{"name":"d","type":"DOUBLE"},{"name":"dec","type":"DECIMAL(10,2)"},{"name":"c","type":"CHAR(5)"},{"name":"str","type":"STRING","comment":"free text"},
 {"name":"bin","type":"BINARY(3)"},{"name":"by","type":"BYTES"},{"name":"dt","type":"DATE"},{"name":"tm","type":"TIME(3)"},{"name":"ts","type":"TIMESTAMP(6)"},{"name":"tz","type":"TIMESTAMP_LTZ(3)"},
 {"name":"arr","type":"ARRAY<INT>"},{"name":"m","type":"MAP<STRING, INT>"},{"name":"r","type":"ROW<a INT, b STRING>"},{"name":"deep","type":"ARRAY<ROW<x FLOAT, y MAP<STRING, ROW<z INT>>>>"}]}' >/dev/null
api POST /v1/databases/shop/tables '{"name":"customers","buckets":2,"primary_key":["id"],"comment":"who buys","columns":[
 {"name":"id","type":"BIGINT"},{"name":"name","type":"STRING"},{"name":"n","type":"INT"},{"name":"home","type":"ROW<street STRING, zip INT>"}]}' >/dev/null
api POST /v1/databases/shop/tables '{"name":"dropped","buckets":1,"columns":[{"name":"x","type":"INT"}]}' >/dev/null
api POST /v1/databases/shop/tables/dropped/records '{"rows":[{"x":1}]}'
(cd $W; python3 -) <<'P'
import json
def event(i):
    if i%7==3: return {"id":i}
    return {"id":i,"b":i%2==0,"t":i%100-50,"s":i%1000,"i":i*1000,"f":i/4,"d":i/8,"dec":"%d.%02d"%(i,i%100),"c":"c%d"%(i%10),"str":"text "*(i%5),"bin":"AAEC","by":"/w==",
     "dt":"2026-01-%02d"%(i%28+1),"tm":"10:00:00.%03d"%(i%1000),"ts":"2026-01-01T00:00:00.%06d"%i,"tz":"2026-01-01T00:00:00.%03dZ"%(i%1000),
     "arr":[i,None,3],"m":{"k":i},"r":{"a":i,"b":"r"},"deep":[{"x":0.5,"y":{"q":{"z":i}}},None]}
open('big.ndjson','w').write("".join(json.dumps(event(i))+"\n" for i in range(10,4010)))
for n,(a,b) in {"e1":(0,10),"e2":(4010,4013),"e3":(4013,4020)}.items():
    json.dump({"rows":[event(i) for i in range(a,b)]},open('%s.json'%n,'w'))
open('cust.ndjson','w').write("".join(json.dumps({"id":i,"name":"customer %d"%i,"n":i%13,"home":{"street":"s%d"%i,"zip":i}})+"\n" for i in range(3000)))
P
E=/v1/databases/shop/tables/events/records C=/v1/databases/shop/tables/customers/records
api POST $E @$W/e1.json
api POST $E @$W/big.ndjson application/x-ndjson
api POST $C @$W/cust.ndjson application/x-ndjson
api POST $C '{"mode":"delete","rows":[{"id":5},{"id":6},{"id":9999}]}'
api POST $C '{"columns":["id","n"],"rows":[{"id":7,"n":700},{"id":3000,"n":1}]}'
curl -sS --fail-with-body $B$C -H 'Content-Type: application/json' -H 'X-Writer-Id: loader' -H 'X-Writer-Seq: 1' --data-binary '{"rows":[{"id":1,"name":"numbered"}]}'; echo
kill -TERM $PID; wait $PID || true
start
api POST $E @$W/e2.json
api POST $C '{"rows":[{"id":7,"name":"again","n":null},{"id":3001,"name":"new","n":2147483647}]}'
api DELETE /v1/databases/shop/tables/dropped
api POST $E @$W/e3.json
curl -sS --fail-with-body $B$C -H 'Content-Type: application/json' -H 'X-Writer-Id: loader' -H 'X-Writer-Seq: 2' --data-binary '{"rows":[{"id":2,"name":"numbered too"}]}'; echo
curl -sS -H 'Accept: application/x-ndjson' "$B/v1/databases/shop/tables/events/scan" | LC_ALL=C sort > $W/answers/events.ndjson
curl -sS -H 'Accept: application/x-ndjson' "$B/v1/databases/shop/tables/customers/scan" | LC_ALL=C sort > $W/answers/customers.ndjson
curl -sS -H 'Accept: application/x-ndjson' "$B/v1/databases/shop/tables/customers\$changelog/scan" | LC_ALL=C sort > $W/answers/customers_changelog.ndjson
curl -sS "$B/v1/databases/shop/tables/events" > $W/answers/events.json
curl -sS "$B/v1/databases/shop/tables/customers" > $W/answers/customers.json
curl -sS "$B/v1/databases/shop/tables/customers/offsets?at=latest"; echo
kill -9 $PID; wait $PID || true
rm -f $D/LOCK $D/addresses.json
tar -C $W --sort=name --owner=0 --group=0 -cf - data answers | gzip -9n > $W/data.tar.gz
