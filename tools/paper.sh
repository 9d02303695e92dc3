#!/usr/bin/env bash
# P1's experiments: density and tokens side by side, one process each; what is complete already is skipped.
# Usage: paper.sh [results/paper]
set -uo pipefail
out=${1:-results/paper}
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
mkdir -p "$out"

density() {
  local failed=0 name member
  for name in no_training align noise depth regularization bag_of_words terminal_rates; do
    "$PY" -m solver.run "cases/paper/$name.toml" -o "$out/$name" || failed=1
  done
  for member in "$out"/{align,noise,bag_of_words,terminal_rates}/*/; do
    [ -f "$member/theory.json" ] || "$PY" -m solver.theory "$member/case.toml" --no-refine --samples 1 -o "$member" --quiet || failed=1
  done
  for member in "$out"/align/eigenvalues=1.0,0.65/ "$out"/bag_of_words/kappa=2.0_seed=0/; do
    [ -f "$member/pruning.csv" ] || "$PY" -m solver.pruning "$member" || failed=1
  done
  return $failed
}

tokens() {
  local failed=0 name
  for name in no_training align depth regularization tokens noise_particles bag_of_words; do
    "$PY" -m solver.particles "cases/paper/$name.toml" -o "$out/$name-particles" || failed=1
  done
  return $failed
}

density 2>&1 | sed -u 's/^/density | /' &
first=$!
tokens 2>&1 | sed -u 's/^/tokens  | /' &
second=$!
failed=0
wait $first || failed=1
wait $second || failed=1
"$BIN/mpirun" -n 2 "$PY" -m solver.run cases/paper/terminal_rates_sphere.toml -o "$out/terminal_rates_sphere" || failed=1
exit $failed
