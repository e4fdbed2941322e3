#!/usr/bin/env bash
# Shows what the library does so far: runs each example program of build/dev, C++ and Python; those with a process group
# as two ranks.
set -euo pipefail
cd "$(dirname "$0")/.."

export PYTHONPATH=$PWD/build/dev/python
shopt -s nullglob
for program in build/dev/examples/example_*; do
  [ -x "$program" ] || continue
  echo "demo: $program"
  "$program"
done
for script in examples/*.py; do
  launcher=()
  if grep -q init_process_group "$script"; then launcher=(-m hookline run -n 2); fi
  echo "demo: python ${launcher[*]} $script"
  .venv/bin/python "${launcher[@]}" "$script"
done
