#!/usr/bin/env bash
# Builds the C++ tests with sanitizers and runs them: address and undefined behaviour together, then threads.
set -euo pipefail
cd "$(dirname "$0")/.."

# A test requests too much memory and expects an error, so the allocator must not abort. Stack use after return is not
# detected: gcc 12 aligns its fake frames to 32 bytes, on which kernels with 64-byte vectors crash.
export ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=0:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=allocator_may_return_null=1:second_deadlock_stack=1:suppressions=$PWD/tools/tsan.supp
# Sanitizers slow tests down several times: use a smaller sample of the collectives, and fewer schedules.
export HOOKLINE_MATRIX=${HOOKLINE_MATRIX:-0.25} HOOKLINE_SEEDS=${HOOKLINE_SEEDS:-50}

for preset in asan tsan; do
  # The thread sanitizer requires fixed address ranges, which conflict with address randomization on newer kernels.
  setarch -R tools/build.sh "$preset"
  # With gcc 12's address sanitizer, fork() does not release allocator locks held by other threads, so a child that
  # allocates, as in these tests, deadlocks. And without file descriptors, the undefined behaviour sanitizer reports false
  # type errors, because it validates pointers through a pipe.
  without=()
  [ "$preset" = tsan ] || without=(--exclude-regex 'Forked|DescriptorExhaustion|NoFileCanBeOpened')
  echo "sanitize: running the tests of build/$preset"
  setarch -R ctest --test-dir "build/$preset" --output-on-failure --parallel "$(nproc)" --no-tests=error "${without[@]}"
done
echo "sanitize: all passed"
