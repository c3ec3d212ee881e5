# Sourced by run: the same server through stock pyarrow, when it can be had.

title "The same through Arrow Flight, with stock pyarrow"
# python_with MODULES: the first Python that has them.
python_with() {
  [ "${DEMO_PYTHON:-}" != none ] || return 0
  local candidate
  for candidate in ${DEMO_PYTHON:-python3 .venv/bin/python}; do
    if "$candidate" -c "import $1" 2>/dev/null; then echo "$candidate"; return 0; fi
  done
}
PYTHON=$(python_with 'pyarrow.flight, pyiceberg')
if [ -z "$PYTHON" ] && [ -z "${DEMO_PYTHON:-}" ] && command -v python3 >/dev/null; then
  say "Installing pyarrow and pyiceberg into .venv (once)."
  if python3 -m venv .venv 2>/dev/null && timeout 300 .venv/bin/pip install --quiet --disable-pip-version-check pyarrow pyiceberg 2>"$DATA/pip.log"; then
    PYTHON=.venv/bin/python
  fi
fi
[ -n "$PYTHON" ] || PYTHON=$(python_with pyarrow.flight)
if [ -z "$PYTHON" ]; then
  say "pyarrow is not here and could not be installed, so this part is left out. With it: python3 demo/tour.py $FLIGHT"
else
  run "$PYTHON demo/tour.py $FLIGHT"
  check "the tour is complete" "$(echo "$OUT" | tail -1)" "done"
fi
