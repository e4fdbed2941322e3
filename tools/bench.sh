#!/usr/bin/env bash
# Runs all benchmarks of the release build: the C++ programs build/release/bench/*_bench, then the *_bench.py of bench/.
# --quick runs only the collectives with a performance target.
set -euo pipefail
cd "$(dirname "$0")/.."

shopt -s nullglob
for program in build/release/bench/*_bench; do
  echo "bench: $(basename "$program")"
  ranks=()  # the other programs start their ranks themselves
  [ "$(basename "$program")" != mpi_bench ] || ranks=(mpirun -n 2 --allow-run-as-root)
  "${ranks[@]}" "$program"
done
for script in bench/*_bench.py bench/python_groups/*_bench.py bench/hooks/*_bench.py bench/torch/*_bench.py; do
  echo "bench: $script"
  PYTHONPATH=$PWD/build/release/python .venv/bin/python "$script"
done
echo "bench: links, the two fastest rates (links_bench.py has four)"
PYTHONPATH=$PWD/build/release/python .venv/bin/python bench/links/links_bench.py --rates 10gbit:3,1gbit:3
echo "bench: collectives"
.venv/bin/python bench/collectives/collectives_bench.py "$@"
