# Sourced by run: how the demo talks, runs and checks commands, and starts and stops its server.

CHECKS=0
SERVER_PID=

if [ -t 1 ]; then BOLD=$'\e[1m' DIM=$'\e[2m' PLAIN=$'\e[0m'; else BOLD='' DIM='' PLAIN=''; fi

title() { printf '\n%s== %s%s\n' "$BOLD" "$*" "$PLAIN"; }
say() { printf '\n%s\n' "$*"; }
fail() { printf '\n%sThe demo failed:%s %s\n' "$BOLD" "$PLAIN" "$*" >&2; exit 1; }

now() { date +%s%N; }

# run shows a command, runs it, shows what it printed (OUT) and how long it took (MS).
run() {
  printf '\n%s$ %s%s\n' "$BOLD" "$1" "$PLAIN"
  local start status=0
  start=$(now)
  OUT=$(eval "$1" 2>&1) || status=$?
  MS=$((($(now) - start) / 1000000))
  [ -z "$OUT" ] || printf '%s\n' "$OUT" | cut -c1-400 | { if [ -n "${2:-}" ]; then head -n "$2"; cat >/dev/null; else cat; fi; }
  printf '%s(%d ms)%s\n' "$DIM" "$MS" "$PLAIN"
  [ "$status" = 0 ] || fail "exit $status of: $1"
}

# check WHAT GOT WANT: equal, or the demo ends.
check() {
  CHECKS=$((CHECKS + 1))
  [ "$2" = "$3" ] || fail "$1: got '$2', want '$3'"
  printf '%s✓ %s%s\n' "$DIM" "$1" "$PLAIN"
}

# check_true WHAT COMMAND…: the command says yes, or the demo ends.
check_true() {
  CHECKS=$((CHECKS + 1))
  local what=$1
  shift
  "$@" || fail "$what"
  printf '%s✓ %s%s\n' "$DIM" "$what" "$PLAIN"
}

# field NAME: the number or text of a member of the JSON on standard input; the first of that name.
field() { sed -n 's/.*"'"$1"'" *: *"\{0,1\}\([^",}]*\).*/\1/p' | head -1; }

# count TABLE [FILTER]
count() { curl -sS --get "$MILLRACE_SERVER/v1/databases/${1%%.*}/tables/${1#*.}/count" ${2:+--data-urlencode "filter=$2"} | field count; }

# pid_of says the process of the server in $DATA, when it is one.
pid_of() {
  local pid
  pid=$(field pid 2>/dev/null <"$DATA/addresses.json" || true)
  if [ -n "$pid" ] && tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -q 'serve .*--data-dir'; then echo "$pid"; fi
}

stop_earlier() {
  [ -f "$DATA/addresses.json" ] || return 0
  local pid
  pid=$(pid_of)
  [ -n "$pid" ] || return 0
  echo "Stopping the server of an earlier run (process $pid)."
  kill "$pid" 2>/dev/null || true
  for _ in $(seq 150); do
    kill -0 "$pid" 2>/dev/null || return 0
    sleep 0.1
  done
  fail "process $pid does not end; stop it and try again"
}

port_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

start_server() {
  local http=127.0.0.1:8080 flight=127.0.0.1:8815
  port_free 8080 || { http=127.0.0.1:0; say "Port 8080 is taken; the demo uses a free one."; }
  port_free 8815 || { flight=127.0.0.1:0; say "Port 8815 is taken; the demo uses a free one."; }
  mkdir -p "$DATA"
  SERVE="$BIN serve --data-dir $DATA --http-addr $http --flight-addr $flight"
  printf '\n%s$ %s &%s\n' "$BOLD" "$SERVE" "$PLAIN"
  nohup $SERVE >"$DATA/server.log" 2>&1 </dev/null &
  SERVER_PID=$!
  local start
  start=$(now)
  for _ in $(seq 600); do
    kill -0 "$SERVER_PID" 2>/dev/null || { tail -5 "$DATA/server.log" >&2; fail "the server ended at its start; its log is above"; }
    if [ "$(pid_of)" = "$SERVER_PID" ]; then
      MILLRACE_SERVER=http://$(field http <"$DATA/addresses.json" | sed 's/ //g')
      FLIGHT=grpc://$(field flight <"$DATA/addresses.json" | sed 's/ //g')
      if curl -fsS -o /dev/null "$MILLRACE_SERVER/readyz" 2>/dev/null; then
        printf '%s(ready after %d ms)%s\n' "$DIM" $((($(now) - start) / 1000000)) "$PLAIN"
        export MILLRACE_SERVER FLIGHT
        return 0
      fi
    fi
    sleep 0.05
  done
  fail "the server was not ready within 30 s; see $DATA/server.log"
}

# ended runs at the end of the script, however it ends.
ended() {
  local pids
  pids=$(jobs -p | grep -vx "${SERVER_PID:-none}" || true)
  [ -z "$pids" ] || kill $pids 2>/dev/null || true
  if [ -n "$CHECK" ] && [ -n "$SERVER_PID" ]; then
    kill "$SERVER_PID" 2>/dev/null || true
    wait "$SERVER_PID" || fail "the server ended with $?; see $DATA/server.log"
    [ "$1" != 0 ] || echo "The server has stopped."
  elif [ "$1" != 0 ] && [ -n "$SERVER_PID" ]; then
    echo "The server still runs (process $SERVER_PID, log $DATA/server.log); demo/run stop ends it." >&2
  fi
}
