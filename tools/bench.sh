#!/usr/bin/env bash
# Runs every benchmark of the release build: the C++ programs build/release/bench/*_bench, then the *_bench.py of bench/.
# --quick leaves out the rows of the collectives of which no floor speaks.
set -euo pipefail
cd "$(dirname "$0")/.."

shopt -s nullglob
for program in build/release/bench/*_bench; do
  echo "bench: $(basename "$program")"
  ranks=()  # the others start theirs themselves
  [ "$(basename "$program")" != mpi_bench ] || ranks=(mpirun -n 2 --allow-run-as-root)
  "${ranks[@]}" "$program"
done
for script in bench/*_bench.py bench/python_groups/*_bench.py bench/hooks/*_bench.py bench/torch/*_bench.py; do
  echo "bench: $script"
  PYTHONPATH=$PWD/build/release/python .venv/bin/python "$script"
done
echo "bench: links, the two faster rates (links_bench.py has four)"
PYTHONPATH=$PWD/build/release/python .venv/bin/python bench/links/links_bench.py --rates 10gbit:3,1gbit:3
echo "bench: collectives"
.venv/bin/python bench/collectives/collectives_bench.py "$@"
