# Sourced by run: worked examples as they stand in the documents, in a database retail (X2, X5, X9, X10).

title "The changelog of one order (X2)"
RETAIL="\$MILLRACE_SERVER/v1/databases/retail/tables"
retail() { curl -fsS --json "$2" "$MILLRACE_SERVER/v1/databases/retail/tables${1:+/$1}"; }
curl -fsS -o /dev/null --json '{"name":"retail"}' "$MILLRACE_SERVER/v1/databases"
retail "" '{"name":"order_status","primary_key":["order_id"],"buckets":4,"columns":[{"name":"order_id","type":"BIGINT"},{"name":"status","type":"STRING"}]}' >/dev/null
run "curl -sS --json '{\"rows\":[{\"order_id\":1,\"status\":\"pending\"}]}' $RETAIL/order_status/records"
run "curl -sS --json '{\"rows\":[{\"order_id\":1,\"status\":\"paid\"}]}' $RETAIL/order_status/records"
run "curl -sS -X DELETE $RETAIL/order_status/rows/1"
run "curl -sS '$(eval echo "$RETAIL")/order_status/scan?view=changelog' -H 'Accept: application/x-ndjson'"
check "pending, paid, gone" "$(echo "$OUT" | sed 's/.*"_change_type":"\(..\)","_log_offset":\([0-9]*\).*"status":"\([a-z]*\)".*/\2 \1 \3/' | paste -sd, -)" \
  "0 +I pending,1 -U pending,2 +U paid,3 -D paid"

title "Two producers, one row (X5)"
retail "" '{"name":"product_dim","primary_key":["product_id"],"columns":[{"name":"product_id","type":"BIGINT"},{"name":"name","type":"STRING"},{"name":"category","type":"STRING"},{"name":"price_cents","type":"BIGINT"}]}' >/dev/null
say "Pricing knows prices, the catalogue knows names. Each writes its own columns, and neither clobbers the other:"
run "curl -sS --json '{\"columns\":[\"product_id\",\"price_cents\"],\"rows\":[{\"product_id\":99,\"price_cents\":1499}]}' $RETAIL/product_dim/records"
run "curl -sS --json '{\"columns\":[\"product_id\",\"name\",\"category\"],\"rows\":[{\"product_id\":99,\"name\":\"Widget\",\"category\":\"tools\"}]}' $RETAIL/product_dim/records"
run "curl -sS $RETAIL/product_dim/rows/99"
check "both are there" "$OUT" '{"product_id":99,"name":"Widget","category":"tools","price_cents":1499}'
run "curl -sS -X PATCH --json '{\"category\":null}' $RETAIL/product_dim/rows/99"
check "a named NULL clears its column" "$(curl -sS "$MILLRACE_SERVER/v1/databases/retail/tables/product_dim/rows/99")" '{"product_id":99,"name":"Widget","category":null,"price_cents":1499}'

title "Every lookup after an acknowledgement sees the new tier (X9)"
retail "" '{"name":"cust_dim","primary_key":["cust_id"],"buckets":4,"columns":[{"name":"cust_id","type":"BIGINT"},{"name":"name","type":"STRING"},{"name":"tier","type":"STRING"}]}' >/dev/null
retail cust_dim/records '{"rows":[{"cust_id":42,"name":"Acme","tier":"gold"},{"cust_id":7,"name":"Bolt","tier":"gold"}]}' >/dev/null
for tier in platinum gold silver gold; do
  retail cust_dim/records '{"columns":["cust_id","tier"],"rows":[{"cust_id":42,"tier":"'$tier'"}]}' >/dev/null
  check "order 1001 of customer 42: Acme, $tier" "$(retail cust_dim/lookup '{"keys":[{"cust_id":42}],"columns":["name","tier"]}')" '{"rows":[{"name":"Acme","tier":"'$tier'"}]}'
done

title "Revenue by tier follows a change, from the changelog alone (X10)"
say "Customer 42 has bought for 10,000 and customer 7 for 500. 42 goes gold → platinum, then is deleted.
A consumer that adds on + and subtracts on - is always right:"
curl -sN -H 'Accept: text/event-stream' "$MILLRACE_SERVER/v1/databases/retail/tables/cust_dim/changelog?from=full" >"$DATA/tiers.events" &
fold() { # prints the revenue of gold and platinum after each whole change that was seen
  sed -n 's/^data: *{"_change_type":"\(..\)".*"cust_id":\([0-9]*\).*"tier":"\([a-z]*\)".*/\1 \2 \3/p' "$DATA/tiers.events" | awk '
    BEGIN { revenue[42] = 10000; revenue[7] = 500 }
    { tier[$3] += ($1 ~ /[+]/ ? 1 : -1) * revenue[$2] }
    $1 != "-U" { last = (tier["gold"] + 0) " " (tier["platinum"] + 0) }
    END { print last }'
}
await() { for _ in $(seq 100); do if [ "$(fold)" = "$1" ]; then break; fi; sleep 0.05; done; check "gold and platinum: $1" "$(fold)" "$1"; }
await "10500 0"
run "curl -sS -X PATCH --json '{\"tier\":\"platinum\"}' $RETAIL/cust_dim/rows/42"
await "500 10000"
run "curl -sS -X DELETE $RETAIL/cust_dim/rows/42"
await "500 0"
