#!/usr/bin/env bash
# Shows what the library does so far: runs each example program of build/dev, C++ and Python.
set -euo pipefail
cd "$(dirname "$0")/.."

shopt -s nullglob
for program in build/dev/examples/example_*; do
  [ -x "$program" ] || continue
  echo "demo: $program"
  "$program"
done
for script in examples/*.py; do
  echo "demo: python $script"
  PYTHONPATH=$PWD/build/dev/python .venv/bin/python "$script"
done
