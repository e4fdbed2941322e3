#!/usr/bin/env bash
# Checks the format of C++ and Python sources; with --write, formats them.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t cpp < <(git ls-files --cached --others --exclude-standard '*.hpp' '*.cpp')
if [ "${1:-}" = --write ]; then
  .venv/bin/clang-format -i "${cpp[@]}"
  .venv/bin/ruff check --fix --quiet .
  .venv/bin/ruff format --quiet .
else
  .venv/bin/clang-format --dry-run --Werror "${cpp[@]}"
  .venv/bin/ruff format --check --quiet . || { echo "format: run 'make format' to fix the files above"; exit 1; }
fi
