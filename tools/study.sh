#!/usr/bin/env bash
# The sweeps behind a page of docs/, two at a time; what is complete already is skipped.
# Usage: study.sh paper | two_optima | auxiliary | joined   (results in results/<study>)
set -uo pipefail
study=${1:-}
case $study in
  paper | two_optima | auxiliary | joined) ;;
  *) echo "usage: study.sh paper | two_optima | auxiliary | joined (got '$study')" >&2 && exit 2 ;;
esac
out=results/$study
# A stop ends all that runs; what is complete then stays so.
trap 'trap "" INT TERM; kill -TERM 0; wait; exit 130' INT TERM
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
failed=0

density() { "$PY" -m solver.run "cases/$study/$1.toml" -o "$out/$1"; }
tokens() { "$PY" -m solver.particles "cases/$study/$1.toml" -o "$out/$1-particles"; }
theory() { [ -f "$1/theory.json" ] || "$PY" -m solver.theory "$1/case.toml" --samples 1 -o "$1" --quiet "${@:2}"; }
prune() { [ -f "$1/pruning.json" ] || "$PY" -m solver.pruning "$1" --quiet; }

# Run a command for each of some words; the rest still runs after a failure.
each() {
  local command=$1 word bad=0
  shift
  for word in "$@"; do $command "$word" || bad=1; done
  return $bad
}

# Run two groups of commands at once, each on its own core.
both() {
  "$1" 2>&1 | sed -u 's/^/1 | /' &
  local first=$!
  "$2" 2>&1 | sed -u 's/^/2 | /' &
  local second=$!
  wait $first || failed=1
  wait $second || failed=1
}

paper_first() {
  local bad=0
  each density no_training align noise depth regularization bag_of_words terminal_rates || bad=1
  each theory "$out"/terminal_rates/*/ || bad=1
  for member in "$out"/{align,noise}/*/ "$out"/bag_of_words/kappa={2.0,10.0}_*/; do theory "$member" --no-refine || bad=1; done
  each prune "$out"/align/eigenvalues=1.0,0.65 "$out"/bag_of_words/kappa=2.0_seed=0 || bad=1
  return $bad
}

paper_second() {
  local bad=0
  each tokens no_training align depth regularization tokens noise_particles bag_of_words || bad=1
  prune "$out"/align-particles/eigenvalues=1.0,0.65 || bad=1
  density terminal_rates_sphere || bad=1
  each theory "$out"/terminal_rates_sphere/*/ || bad=1
  return $bad
}

two_optima_first() {
  local bad=0
  each density families effort effort_graded penalty centred targets || bad=1
  each prune "$out"/families/start={zero,steer} || bad=1
  return $bad
}

two_optima_second() {
  local bad=0
  each density crossing crossing_noise families_sphere effort_sphere || bad=1
  tokens tokens || bad=1
  return $bad
}

auxiliary_first() {
  each tokens usa rope rope_general prefix toeplitz_linear_long universality_{rope,uniform,points} metastability
}

auxiliary_second() {
  each tokens toeplitz_linear toeplitz_exponential distance_bias distance_bias_shapes toeplitz_states \
    universality_{mixture,spiral}
}

joined_first() {
  each density diracs_rope diracs_prefix rates align bag_of_words
}

joined_second() {
  each tokens diracs_rope diracs_prefix align bag_of_words
}

# Tokens under the control of a run of the PDE.
controlled() { [ -f "$2/summary.json" ] || "$PY" -m solver.particles "$1/case.toml" --control "$1/control.npz" -o "$2" --quiet; }

# What needs the results of both groups.
joined_last() {
  local sweep member bad=0
  for sweep in align bag_of_words; do
    for member in "$out/$sweep"/method=lbfgs_*/; do
      controlled "${member%/}" "$out/$sweep-controlled/$(basename "$member")" || bad=1
    done
  done
  for sweep in diracs_rope diracs_prefix; do
    for member in "$out/$sweep"/*/; do
      "$PY" -m postprocess.compare "$member" "$out/$sweep-particles/$(basename "$member")" --depths 2 || bad=1
    done
  done
  return $bad
}

mkdir -p "$out"
both "${study}_first" "${study}_second"
if declare -F "${study}_last" >/dev/null; then "${study}_last" || failed=1; fi
exit $failed
