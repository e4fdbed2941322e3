#!/usr/bin/env bash
# Builds one preset into build/<preset>:  build.sh <preset> [target...]
# For the preset dev, also makes `import hookline` and `import hookline.torch` work in .venv, from build/dev/python.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
directory=build/$preset
log=$directory/configure.log
mkdir -p "$directory"

if [ ! -f "$directory/build.ninja" ] || [ CMakePresets.json -nt "$directory/build.ninja" ]; then
  echo "build: configuring $directory"
  # Shows the output of cmake only on failure.
  cmake --preset "$preset" >"$log" 2>&1 || { cat "$log"; exit 1; }
fi

targets=()
[ $# -eq 0 ] || targets=(--target "$@")
echo "build: building $directory"
cmake --build "$directory" "${targets[@]}"

if [ "$preset" = dev ]; then
  .venv/bin/python tools/stage_metadata.py "$directory/python"
fi
