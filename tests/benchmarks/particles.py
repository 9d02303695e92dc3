"""Benchmark of the particles on one core: cost against N, and gradients against automatic differentiation (JAX).

The comparison with JAX needs the optional extra `bench` (pip install -e ".[bench]"); it also checks that both agree.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core for every library, JAX included

from mpi4py import MPI

import numpy as np
from bench import row, seconds

from solver.case import Case, load_case
from solver.particles.create import create_field
from solver.particles.problem import ParticleProblem
from solver.particles.step import step
from solver.types import FloatArray

CASES = Path(__file__).resolve().parents[2] / "cases"
FILES = {"circle": "turnpike_circle.toml", "sphere": "turnpike.toml"}


LABELLED: dict[str, dict[str, object]] = {
    "rope": {"auxiliary.kernel": "rope"},
    "toeplitz": {"auxiliary.kernel": "toeplitz"},
    "distance bias": {"auxiliary.kernel": "distance_bias", "auxiliary.decay": "gaussian"},
}


def problem(
    manifold: str, seeds: int = 1, labels: dict[str, object] | None = None, **particles: object
) -> ParticleProblem:
    changes = {f"particles.{key}": value for key, value in particles.items() if key != "T"} | (labels or {})
    case: Case = load_case(CASES / FILES[manifold], {**changes, "depth.T": particles.get("T", 1.0), "depth.layer": 0.1})
    return ParticleProblem(case, create_field(case, MPI.COMM_SELF), list(range(seeds)))


def step_time(manifold: str, n: int, attention: str, labels: dict[str, object] | None = None) -> float:
    """Seconds of one step, drawing its noise included."""
    p = problem(manifold, labels=labels, n=n, attention=attention)
    W = np.zeros((1, *p.control_shape[1:]))
    return seconds(lambda: step(p.dynamics, p.initial, W, p.dt, p.step_noise(0, [0])), 3)


def scaling(manifold: str, attention: str, counts: tuple[int, ...], labels: str = "") -> tuple[float, float]:
    """Fitted exponent, and seconds of one step at the largest N; `labels`: which of LABELLED."""
    times = [step_time(manifold, n, attention, LABELLED.get(labels)) for n in counts]
    for n, time in zip(counts, times, strict=True):
        print(f"  {manifold}, {attention}{labels and ', '}{labels}: N = {n:>7}, one step {time:.4f} s")
    return float(np.polyfit(np.log(counts), np.log(times), 1)[0]), times[-1]


def jax_gradient(p: ParticleProblem, noise: FloatArray) -> Callable[[FloatArray], tuple[FloatArray, FloatArray]]:
    """J and its L²(0,T) gradient for W (batch, steps, d, m), written with all pairs, scan and reverse mode."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    A, target = jnp.asarray(p.case.matrix), jnp.asarray(p.case.target)
    dt, size, strength = p.dt, np.sqrt(2.0 * p.case.noise.epsilon * p.dt), p.case.objective.regularization

    def advance(x, inputs):  # type: ignore[no-untyped-def]
        W, xi = inputs
        y = x @ A
        drift = jnp.exp(x @ y.T) @ y / len(x) + x @ W.T
        u = dt * drift + size * xi
        v = u - (x * u).sum(axis=1, keepdims=True) * x
        theta = jnp.sqrt((v**2).sum(axis=1, keepdims=True))
        return jnp.cos(theta) * x + jnp.sinc(theta / jnp.pi) * v, None

    def objective(W, x, xi):  # type: ignore[no-untyped-def]
        x, _ = jax.lax.scan(advance, x, (W, xi))
        return 1.0 - x.mean(axis=0) @ target + 0.5 * strength * dt * (W**2).sum()

    both = jax.jit(jax.vmap(jax.value_and_grad(objective)))
    x, xi = jnp.asarray(p.initial), jnp.asarray(noise)

    def evaluate(W: FloatArray) -> tuple[FloatArray, FloatArray]:
        J, gradient = both(W, x, xi)
        return np.asarray(J), np.asarray(gradient) / dt

    return evaluate


def against_jax(name: str, p: ParticleProblem, aim: float, repeat: int) -> bool:
    """JAX's time over ours, for J and gradient of the same numbers."""
    steps = p.control_shape[0]
    noise = np.stack([p.step_noise(n, list(range(len(p.seeds)))) for n in range(steps)], axis=1)
    W = 0.1 * np.random.default_rng(0).standard_normal((len(p.seeds), *p.control_shape))
    other = jax_gradient(p, noise)
    found, (J, gradient) = p.evaluate(W), other(W)
    print(
        f"  {name}: J differs by {np.abs(found.J - J).max():.1e}, "
        f"the gradient by {np.abs(found.gradient - gradient).max() / np.abs(gradient).max():.1e} (relative)"
    )
    ours, theirs = seconds(lambda: p.evaluate(W), repeat), seconds(lambda: other(W), repeat)
    print(f"  {name}: ours {ours:.3f} s, JAX with all pairs {theirs:.3f} s: {theirs / ours:.1f} times")
    return row(f"{name}: ours / JAX", ours / theirs, 1.0 / aim)


def main() -> int:
    print("one core; medians; particles, λ = (1, 0.65) on the circle, (1, 0.65, 0.3) on the sphere")
    circle, at_million = scaling("circle", "separable", (10_000, 100_000, 1_000_000))
    sphere, at_hundred_thousand = scaling("sphere", "separable", (1_000, 10_000, 100_000))
    labelled = {name: scaling("sphere", "separable", (1_000, 10_000, 100_000), name) for name in LABELLED}
    dense, at_dense = scaling("circle", "dense", (1_024, 2_048, 4_096, 8_192))
    print(
        f"  one step: N = 10⁶ on the circle {at_million:.2f} s, N = 10⁵ on the sphere {at_hundred_thousand:.2f} s, "
        f"all pairs at N = 8192 {at_dense:.2f} s"
    )
    results = [
        row("exponent in N, circle, separable", circle, 1.1, " (aim 1)"),
        row("exponent in N, sphere, separable", sphere, 1.1, " (aim 1)"),
        *(row(f"exponent in N, sphere, {name}", slope, 1.1, " (aim 1)") for name, (slope, _) in labelled.items()),
        *(
            row(f"one step, sphere, N = 10⁵, {name} / no labels", time / at_hundred_thousand, 4.0)
            for name, (_, time) in labelled.items()
        ),
        row("exponent in N, circle, all pairs", dense, 2.3, " (expected 2)"),
        row("one step, circle, N = 10⁶ separable / 8192 all pairs", at_million / at_dense, 10.0),
    ]
    try:
        import jax  # noqa: F401
    except ImportError:
        print('no comparison with JAX: it is an optional extra, pip install -e ".[bench]"')
        return 0 if all(results) else 1
    results += [
        against_jax("gradient, N = 4096, 8 steps", problem("circle", n=4096, T=0.8), 50.0, 3),
        against_jax("gradient, 20 seeds × 64 tokens, 800 steps", problem("circle", 20, n=64, T=80.0), 1.0, 5),
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
