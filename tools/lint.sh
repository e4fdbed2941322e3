#!/usr/bin/env bash
# Runs all static checks: formatting, static analysis, types, file and layer rules, documentation, and a build with clang.
# Runs all of them even after a failure; the last line names the failed checks.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

failed=()
check() {
  local name=$1
  shift
  echo "lint: $name"
  "$@" || failed+=("$name")
}

mapfile -t scripts < <(git ls-files --cached --others --exclude-standard '*.sh' .ci/run)

check format tools/format.sh
check ruff .venv/bin/ruff check --quiet .
check shellcheck shellcheck "${scripts[@]}"
check layers .venv/bin/python tools/check_layers.py
check files .venv/bin/python tools/check_files.py
check mypy .venv/bin/mypy --no-error-summary
check stubs tools/build.sh dev stub_check
check docs tools/docs.sh
check clang tools/build.sh clang
check clang-tidy .venv/bin/python tools/clang_tidy.py build/clang

if [ ${#failed[@]} -gt 0 ]; then
  echo "lint: FAILED: ${failed[*]}"
  exit 1
fi
echo "lint: all passed"
