#!/usr/bin/env bash
# Builds the documentation into build/docs/html: Doxygen for the C++ headers, then Sphinx. Warnings are errors.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p build/docs
doxygen docs/Doxyfile
PYTHONPATH=$PWD/build/dev/python .venv/bin/python -m sphinx -W --keep-going -q -b html -d build/docs/doctrees docs build/docs/html
echo "docs: see build/docs/html/index.html"
