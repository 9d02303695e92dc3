#!/usr/bin/env bash
# Create the virtual environment: find a Python >= 3.12, install the package with its wheel and test tools, and, as root
# on Debian, the system libraries that gmsh and VTK load. Usage: setup.sh VENV
set -euo pipefail
venv=$1

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1; }

find_python() {
  local candidate
  for candidate in python3 python3.13 python3.12 python3.14 /usr/bin/python3; do
    if command -v "$candidate" >/dev/null 2>&1 && new_enough "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  for candidate in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python3; do
    if [ -x "$candidate" ] && new_enough "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  return 1
}

if ! python=$(find_python); then
  echo "No Python >= 3.12 found on PATH or under pyenv (found: $(python3 --version 2>&1 || echo none))." >&2
  echo "Install one (Debian 13, Ubuntu 24.04: apt-get install python3 python3-venv; else: pyenv install 3.12) and run make again." >&2
  exit 1
fi
if ! { [ "$(uname -s)" = Linux ] && [ "$(uname -m)" = x86_64 ]; }; then
  echo "The FEniCSx wheel exists for Linux x86_64 only. Elsewhere use the DOLFINx image or conda, then: pip install '.[test]'" >&2
  exit 1
fi
if ! [ -x "$venv/bin/python" ] || ! new_enough "$venv/bin/python"; then
  echo "Creating $venv with $("$python" --version) ($python)"
  rm -rf "$venv"
  if ! "$python" -m venv "$venv"; then
    rm -rf "$venv"
    echo "This Python cannot make virtual environments (Debian: apt-get install python3-venv)." >&2
    exit 1
  fi
fi
echo "Installing (1.2 GB, about a minute)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[wheel,test]'

# System libraries: ask the doctor which are missing; as root on Debian install them, else only say so.
missing=$("$venv/bin/python" -m solver.doctor --missing-packages || true)
if [ -n "$missing" ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing system libraries: $missing"
    apt-get update -qq
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
  else
    echo "Missing system libraries; install them with: sudo apt-get install $missing" >&2
  fi
fi
