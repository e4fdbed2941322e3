#!/usr/bin/env bash
# Trains a small network on handwritten digits on two ranks, once with each hook, and prints a table.
# Arguments are passed to examples/digits/digits.py.
set -euo pipefail
cd "$(dirname "$0")/.."

export PYTHONPATH=$PWD/build/dev/python
# Two ranks share the machine: more BLAS threads would compete for the same cores.
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
echo "demo: 1,797 handwritten digits, two ranks, one training run per hook"
[ ! -t 1 ] || set -- --redraw "$@"
exec .venv/bin/python -m hookline run -n 2 examples/digits/digits.py "$@"
