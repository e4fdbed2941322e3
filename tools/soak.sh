#!/usr/bin/env bash
# Runs the tests many times over, in random order: HOOKLINE_SOAK_ROUNDS rounds (20 unless set).
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${HOOKLINE_SOAK_ROUNDS:-20}
for ((round = 1; round <= rounds; ++round)); do
  echo "soak: round $round of $rounds"
  GTEST_SHUFFLE=1 ctest --test-dir build/dev --schedule-random --output-on-failure --parallel "$(nproc)" --no-tests=error
  PYTHONPATH=$PWD/build/dev/python HYPOTHESIS_PROFILE=soak .venv/bin/python -m pytest -q
done
echo "soak: all $rounds rounds passed"
