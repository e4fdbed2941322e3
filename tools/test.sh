#!/usr/bin/env bash
# Runs all tests of build/dev: C++ tests with ctest, then Python tests. Arguments are passed to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=()
echo "test: C++ tests (ctest)"
ctest --test-dir build/dev --output-on-failure --parallel "$(nproc)" --no-tests=error || failed+=(C++)
echo "test: Python tests (pytest)"
PYTHONPATH=$PWD/build/dev/python .venv/bin/python -m pytest "$@" || failed+=(Python)

if [ ${#failed[@]} -gt 0 ]; then
  echo "test: FAILED: ${failed[*]}"
  exit 1
fi
echo "test: all passed"
