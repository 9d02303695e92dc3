"""Attention and FFN drifts together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from solver.parallel import allreduce
from solver.problem import Problem

MakeProblem = Callable[..., Problem]


@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_identity_ffn_with_symmetric_weights_is_a_potential(manifold: str, make_problem: MakeProblem) -> None:
    """Catches W : G contracted over the wrong axes: W = S symmetric drives along ½xᵀSx, W = skew not, I not at all."""
    problem = make_problem(manifold)
    space, dynamics = problem.space, problem.dynamics
    d = space.dimension
    S = np.random.default_rng(0).standard_normal((d, d))
    S = S + S.T
    c = problem.attention.moments(problem.initial)
    i, j = space.edges.T
    potential = 0.5 * np.einsum("ni,ij,nj->n", space.x, S, space.x)
    added = dynamics.drift(c, S) - problem.attention.drift(c)
    assert np.abs(added[0] - (potential[j] - potential[i])).max(initial=0.0) <= 1e-13
    assert np.abs(dynamics.drift(c, np.eye(d)) - problem.attention.drift(c)).max(initial=0.0) <= 1e-13


def test_rotation_turns_tokens_towards_positive_angles(make_problem: MakeProblem) -> None:
    """Catches W transposed: W = e₂e₁ᵀ − e₁e₂ᵀ rotates the circle anticlockwise, d_ij = the arc's angle."""
    problem = make_problem("circle", {"attention.eigenvalues": [0.0, 0.0]})
    space = problem.space
    c = problem.attention.moments(problem.initial)
    d = problem.dynamics.drift(c, np.array([[0.0, -1.0], [1.0, 0.0]]))[0]
    a, b = space.x[space.edges[:, 0]], space.x[space.edges[:, 1]]
    angle = np.arctan2(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0], (a * b).sum(axis=1))
    assert np.abs(d - angle).max(initial=0.0) <= 1e-12


@pytest.mark.ranks
@pytest.mark.parametrize("manifold", ["circle", "sphere"])
def test_drift_vjp_is_the_transpose(manifold: str, make_problem: MakeProblem) -> None:
    """Catches sensitivities of W or μ with a wrong factor or axis order: ⟨d̄, dd⟩ = ⟨μ̄, dμ⟩ + ⟨W̄, dW⟩ to 1e-12."""
    problem = make_problem(manifold, {"ffn.bias": True, "ffn.activation": "tanh"})
    space, dynamics = problem.space, problem.dynamics
    W, dW = np.random.default_rng(1).standard_normal((2, *problem.control_shape[1:]))
    dmu = np.cos(space.x[:, :1].T * 3) + space.x[:, 1]
    d_bar = np.random.default_rng([2, space.comm.rank]).standard_normal((1, len(space.edges)))
    moments = problem.attention.moments
    c = moments(problem.initial)
    pushed = dynamics.drift(c + moments(dmu), W + dW) - dynamics.drift(c, W)
    mu_bar, W_bar = dynamics.drift_vjp(c, d_bar)
    left = float(allreduce(space.comm, (d_bar * pushed).sum()))
    right = float(allreduce(space.comm, (mu_bar * dmu)[:, : space.owned].sum() + (W_bar * dW).sum()))
    scale = float(allreduce(space.comm, np.abs(d_bar * pushed).sum()))
    assert abs(left - right) <= 1e-12 * scale
