#!/usr/bin/env bash
# Runs every benchmark of the release build: the C++ programs build/release/bench/*_bench, then bench/*_bench.py.
set -euo pipefail
cd "$(dirname "$0")/.."

shopt -s nullglob
for program in build/release/bench/*_bench; do
  echo "bench: $(basename "$program")"
  "$program" "$@"
done
for script in bench/*_bench.py; do
  echo "bench: $script"
  PYTHONPATH=$PWD/build/release/python .venv/bin/python "$script"
done
