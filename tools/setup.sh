#!/usr/bin/env bash
# Installs missing packages for building and testing: the Debian packages of tools/debian-packages.txt, and the Python
# packages of tools/python-packages.txt into .venv.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup: $*"; }

debian_packages() {
  local wanted missing=() package as_root=()
  mapfile -t wanted < <(sed 's/#.*//' tools/debian-packages.txt | awk 'NF { print $1 }')
  for package in "${wanted[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      say "missing Debian packages: ${missing[*]}. Install them as root, or install sudo." >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  say "installing Debian packages: ${missing[*]}"
  # A new machine has no package lists before the first update.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
}

# Prints the first Python >= 3.11 with headers and venv.
find_python() {
  local candidate
  for candidate in python3 /usr/bin/python3 python3.11; do
    if "$candidate" - 2>/dev/null <<'PYTHON'; then
import ensurepip, os, sys, sysconfig, venv
sys.exit(sys.version_info < (3, 11) or not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))
PYTHON
      command -v "$candidate"
      return
    fi
  done
  say "no Python 3.11 or newer with headers and venv found" >&2
  return 1
}

# PyPI's torch for Linux includes gigabytes of CUDA libraries, so prefer the CPU build, from pip's default index or else
# from PyTorch's index.
install_torch() {
  local version
  version=$(sed -n 's/^torch==//p' tools/python-packages.txt)
  if .venv/bin/python -c "import importlib.metadata as m; assert m.version('torch').split('+')[0] == '$version'" \
    2>/dev/null; then
    return
  fi
  say "installing torch $version (for CPUs)"
  .venv/bin/pip install -q "torch==$version+cpu" 2>/dev/null ||
    .venv/bin/pip install -q "torch==$version+cpu" --extra-index-url https://download.pytorch.org/whl/cpu
}

python_packages() {
  local wanted python
  if ! .venv/bin/python -c '' 2>/dev/null; then
    python=$(find_python)
    say "creating .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
  fi
  wanted=$(sha256sum <tools/python-packages.txt)
  if [ "$(cat .venv/hookline-packages.sha256 2>/dev/null)" = "$wanted" ]; then return; fi
  install_torch
  say "installing the Python packages of tools/python-packages.txt"
  .venv/bin/pip install -q -r tools/python-packages.txt
  echo "$wanted" >.venv/hookline-packages.sha256
}

debian_packages
python_packages
