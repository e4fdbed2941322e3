#!/usr/bin/env bash
# Builds the C++ tests with sanitizers and runs them: address and undefined behaviour together, then threads.
set -euo pipefail
cd "$(dirname "$0")/.."

# A test asks for more memory than there is, and expects to be refused, not to be ended. Stack use after return is not
# looked for: gcc 12 lays the frames for it at 32 bytes, and kernels with vectors of 64 crash on their own stack.
export ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=0:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=allocator_may_return_null=1:second_deadlock_stack=1:suppressions=$PWD/tools/tsan.supp
# Everything is several times slower here: a smaller sample of the collectives, and fewer schedules of the engine.
export HOOKLINE_MATRIX=${HOOKLINE_MATRIX:-0.25} HOOKLINE_SEEDS=${HOOKLINE_SEEDS:-50}

for preset in asan tsan; do
  # The thread sanitizer needs its fixed places in memory, which address randomisation may take on newer kernels.
  setarch -R tools/build.sh "$preset"
  # At fork() the allocator of gcc 12's address sanitizer stays locked by whichever thread of the parent is in it: a child
  # that allocates, as these tests' do, then waits for ever. The thread sanitizer and glibc see to it. And without file
  # descriptors the other one takes every object for one of another type: it asks the kernel for them by a pipe.
  without=()
  [ "$preset" = tsan ] || without=(--exclude-regex 'Forked|DescriptorExhaustion|NoFileCanBeOpened')
  echo "sanitize: running the tests of build/$preset"
  setarch -R ctest --test-dir "build/$preset" --output-on-failure --parallel "$(nproc)" --no-tests=error "${without[@]}"
done
echo "sanitize: all passed"
