#!/usr/bin/env bash
# Trains a small network on handwritten digits with two ranks, once with each hook that there is, and ends in a table.
# Arguments go to examples/digits/digits.py.
set -euo pipefail
cd "$(dirname "$0")/.."

export PYTHONPATH=$PWD/build/dev/python
# Two ranks share the machine: more threads of the matrix library would only get into each other's way.
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
echo "demo: 1,797 handwritten digits, two ranks, one network for each hook"
[ ! -t 1 ] || set -- --redraw "$@"
exec .venv/bin/python -m hookline run -n 2 examples/digits/digits.py "$@"
