#!/usr/bin/env bash
# Runs long tests for HOOKLINE_SOAK_ROUNDS rounds (default 20). A round runs all tests in random order, the full matrix of
# the collectives, HOOKLINE_SEEDS schedules of the local backend (default 20,000) and a twentieth as many models with
# random delays, 200 steps of twelve large layers with every hook, and more examples for Hypothesis.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${HOOKLINE_SOAK_ROUNDS:-20}
seeds=${HOOKLINE_SEEDS:-20000}
unset HOOKLINE_SEEDS # set below for individual tests; the full suite uses its default
for ((round = 1; round <= rounds; ++round)); do
  order=$((RANDOM + 1)) # one seed for all programs: the ranks of a test under mpirun must run its cases in the same order
  echo "soak: round $round of $rounds: C++ tests in random order (GTEST_RANDOM_SEED=$order)"
  GTEST_SHUFFLE=1 GTEST_RANDOM_SEED=$order ctest --test-dir build/dev --schedule-random --output-on-failure --parallel "$(nproc)" --no-tests=error
  echo "soak: the full matrix of the collectives"
  HOOKLINE_MATRIX=full build/dev/tests/group_test --gtest_brief=1 --gtest_filter='*GroupContract*'
  echo "soak: groups of 512 ranks"
  HOOKLINE_MATRIX=full build/dev/tests/group_test --gtest_brief=1 --gtest_filter='LargestGroups.*'
  echo "soak: $seeds schedules of the local backend"
  HOOKLINE_SEEDS=$seeds build/dev/tests/backend_test --gtest_brief=1 --gtest_filter='Interleaving.*'
  echo "soak: twelve layers, 200 steps, every hook"
  HOOKLINE_SEEDS=1000 build/dev/tests/reducer_test --gtest_brief=1 --gtest_filter='*HooksEndToEnd*'
  echo "soak: $((seeds / 20)) models with random delays"
  HOOKLINE_SEEDS=$((seeds / 20)) build/dev/tests/reducer_test --gtest_brief=1 --gtest_filter='*RandomDelays*'
  echo "soak: Python tests"
  PYTHONPATH=$PWD/build/dev/python .venv/bin/python -m pytest -q --hypothesis-profile=soak
done
echo "soak: all $rounds rounds passed"
