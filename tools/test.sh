#!/usr/bin/env bash
# The suite on 1 and 3 ranks, and its `ranks` subset on 2 and 8. Usage: test.sh MARK-EXPRESSION
set -euo pipefail
marks=$1
# Ranks and test processes share the cores: one BLAS thread each (pytest loads NumPy before solver/__init__.py can say so).
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

echo "== tests on 1 rank"
"$PY" -m pytest -q -m "$marks" -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder
for n in 3 2 8; do
  selection="($marks) and not serial"
  [ "$n" = 3 ] || selection="$selection and ranks"
  echo "== tests on $n ranks: $selection"
  "$BIN/mpirun" -n "$n" "$PY" -m pytest -q -m "$selection"
done
