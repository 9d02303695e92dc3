"""Edge-averaged finite elements: the Bernoulli function and L(d)."""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.operator import EdgeAveragedOperator, Rates, bernoulli, bernoulli_derivative
from solver.parallel import allreduce
from solver.space import Space

MakeSpace = Callable[[str, float], Space]
SPACES = [("circle", 0.5), ("sphere", 0.7)]

epsilons = st.floats(1e-6, 1e3)
drifts = st.floats(-1e3, 1e3) | st.floats(-1e-6, 1e-6) | st.sampled_from([0.0, -0.0, 1e-300, -1e-300, 5e-324])


def _exact(x: np.ndarray) -> np.ndarray:
    """x/(eˣ − 1) in extended precision, by its Taylor series near zero (Bernoulli numbers)."""
    x = x.astype(np.longdouble)
    coefficients = [1.0, -1 / np.longdouble(2), 1 / np.longdouble(12), 0, -1 / np.longdouble(720), 0]
    coefficients += [1 / np.longdouble(30240), 0, -1 / np.longdouble(1209600), 0, 1 / np.longdouble(47900160)]
    near = np.abs(x) < 0.05
    series = sum(c * np.where(near, x, 0) ** k for k, c in enumerate(coefficients))
    safe = np.where(near, 1, x)
    return np.where(near, series, safe / np.expm1(safe))


def _exact_derivative(x: np.ndarray) -> np.ndarray:
    """Of x/(eˣ − 1), in extended precision."""
    x = x.astype(np.longdouble)
    near = np.abs(x) < 0.05
    z = np.where(near, x, 0)
    series = -1 / np.longdouble(2) + z / 6 - z**3 / 180 + z**5 / 5040 - z**7 / 151200 + z**9 / 4790016
    safe = np.where(near, 1, x)
    e = np.expm1(safe)
    return np.where(near, series, (e - safe * (e + 1)) / e**2)


@given(drifts, epsilons)
def test_bernoulli_is_not_negative_and_antisymmetric(s: float, epsilon: float) -> None:
    """Catches overflow, cancellation near zero and a lost drift: β(−s) − β(s) = s is what transports mass."""
    forward, backward = bernoulli(np.array([s]), epsilon)
    assert np.isfinite([forward, backward]).all()
    assert forward[0] >= 0.0
    assert backward[0] >= 0.0
    assert abs(forward[0] - backward[0] - s) <= 4e-16 * (abs(s) + epsilon)


@given(drifts, epsilons)
def test_bernoulli_keeps_detailed_balance(s: float, epsilon: float) -> None:
    """Catches rates whose quotient is not e^{s/ε}: Gibbs states would drift."""
    forward, backward = bernoulli(np.array([s]), epsilon)
    if abs(s) / epsilon < 600:
        assert np.log(forward[0] / backward[0]) == pytest.approx(s / epsilon, rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 50.0])
def test_bernoulli_to_round_off(epsilon: float) -> None:
    """Catches lost digits anywhere between the series and the exponential, against extended precision."""
    x = np.concatenate([[0.0], np.geomspace(1e-12, 600.0, 400)])
    x = np.concatenate([-x, x])
    s = epsilon * x
    forward, backward = bernoulli(s, epsilon)
    # The condition number of β is |x| for large x: a rounding of s/ε alone costs that much.
    allowed = 4e-16 * (2 + np.abs(x))
    assert (np.abs(backward / (epsilon * _exact(x)) - 1) <= allowed).all()
    assert (np.abs(forward / (epsilon * _exact(-x)) - 1) <= allowed).all()


def test_bernoulli_is_monotone_and_continuous_across_scales() -> None:
    """Catches a jump where formulas meet: β falls monotonically from +∞ to 0."""
    s = np.linspace(-3, 3, 60_001)
    _, backward = bernoulli(s, 0.7)
    assert (np.diff(backward) < 0).all()
    assert np.abs(np.diff(backward)).max() <= 1.01 * (s[1] - s[0])


def test_upwind_is_the_limit_of_small_noise() -> None:
    """Catches ε = 0 with a swapped direction: β must tend to its upwind value max(−s, 0)."""
    s = np.array([-2.0, -1e-3, 0.0, 1e-3, 2.0])
    upwind = bernoulli(s, 0.0)
    assert np.array_equal(upwind[0], [0, 0, 0, 1e-3, 2.0])
    assert np.array_equal(upwind[1], [2.0, 1e-3, 0, 0, 0])
    for exact, limit in zip(upwind, bernoulli(s, 1e-9), strict=True):
        assert np.abs(exact - limit).max() <= 1.01e-9
    assert np.array_equal(bernoulli_derivative(s, 0.0), [-1, -1, -0.5, 0, 0])
    assert np.abs(bernoulli_derivative(s, 0.0) - bernoulli_derivative(s, 1e-9)).max() <= 1e-12


def test_derivative_to_round_off() -> None:
    """Catches cancellation in the derivative near its series' end (0.1), where the plain formula loses 4 digits."""
    x = np.concatenate([[0.0], np.geomspace(1e-12, 600.0, 400), 0.1 + np.linspace(-1e-3, 1e-3, 21)])
    x = np.concatenate([-x, x])
    for epsilon in (0.01, 1.0):
        assert np.abs(bernoulli_derivative(epsilon * x, epsilon) - _exact_derivative(x)).max() <= 2e-14


@given(st.floats(-30, 30), st.floats(0.01, 10))
def test_derivative_against_differences(x: float, epsilon: float) -> None:
    """Catches a derivative of another function than the one used (missing 1/ε, swapped branch): the adjoint would be
    wrong.
    """
    step = 1e-4 * epsilon
    s = x * epsilon + step * np.array([-2.0, -1.0, 1.0, 2.0])
    for sign, column in ((-1, 0), (1, 1)):
        value = bernoulli(s, epsilon)[column]
        difference = (value[0] - 8 * value[1] + 8 * value[2] - value[3]) / (12 * step)
        slope = sign * bernoulli_derivative(np.array([sign * x * epsilon]), epsilon)[0]
        assert difference == pytest.approx(slope, abs=1e-9)


@given(drifts, epsilons)
def test_derivative_range_and_symmetry(s: float, epsilon: float) -> None:
    """Catches a slope outside [−1, 0], and β′(s) + β′(−s) = −1 broken: the two ends of an edge would disagree."""
    slope = bernoulli_derivative(np.array([s, -s]), epsilon)
    assert ((slope >= -1) & (slope <= 0)).all()
    assert slope.sum() == pytest.approx(-1.0, abs=2e-16)


def _random_rates(
    space: Space, epsilon: float, size: float, seed: int
) -> tuple[EdgeAveragedOperator, np.ndarray, Rates]:
    generator = np.random.default_rng([seed, space.comm.rank])
    operator = EdgeAveragedOperator(space, epsilon)
    d = size * generator.standard_normal((2, len(space.edges)))
    return operator, d, operator.rates(d)


def _random_nodes(space: Space, seed: int) -> np.ndarray:
    values = np.random.default_rng([seed, space.comm.rank, 1]).standard_normal((2, len(space.x)))
    space.update_ghosts(values)
    return values


def _dot(space: Space, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    owned = slice(0, space.owned)
    return allreduce(space.comm, (a[:, owned] * b[:, owned]).sum(axis=1))


def _dense(space: Space, apply: Callable[[np.ndarray], np.ndarray]) -> np.ndarray | None:
    """A label's matrix, column by column, on rank 0."""
    columns = []
    for k in range(space.nodes):
        unit = np.zeros((2, len(space.x)))
        unit[:, : space.owned] = space.original == k
        space.update_ghosts(unit)
        columns.append(space.gather(apply(unit)))
    return np.stack(columns, axis=-1) if space.comm.rank == 0 else None  # type: ignore[arg-type]


@pytest.mark.ranks
@pytest.mark.parametrize("epsilon", [0.0, 0.01])
@pytest.mark.parametrize(("manifold", "h"), SPACES)
def test_matrix_signs_column_sums_and_transpose(manifold: str, h: float, epsilon: float, make_space: MakeSpace) -> None:
    """Catches a positive off-diagonal entry, a column that loses mass, a transpose of another matrix, and labels
    mixed.
    """
    space = make_space(manifold, h)
    operator, _, rates = _random_rates(space, epsilon, 1.0, 0)
    L = _dense(space, lambda u: operator.apply(rates, u))
    transposed = _dense(space, lambda u: operator.apply_transpose(rates, u))
    if L is None or transposed is None:
        return
    assert np.abs(L.sum(axis=1)).max() <= 1e-13 * np.abs(L).max()
    off = L * (1 - np.eye(space.nodes))
    assert off.max() <= 0.0
    assert np.diagonal(L, axis1=1, axis2=2).min() >= 0.0
    assert np.abs(L - transposed.transpose(0, 2, 1)).max() <= 1e-14 * np.abs(L).max()
    assert np.abs(L[0] - L[1]).max() > 1e-3  # every label has its own drift


@pytest.mark.ranks
@given(st.integers(0, 2**32), st.sampled_from([0.0, 1e-3, 0.1, 10.0]), st.sampled_from([1e-3, 1.0, 100.0]))
def test_transpose_identity(seed: int, epsilon: float, size: float) -> None:
    """Catches a transposed product that is not the transpose, on any partition: ⟨Lu, v⟩ = ⟨u, Lᵀv⟩ to 1e-12."""
    space = _shared_space()
    operator, _, rates = _random_rates(space, epsilon, size, seed)
    u, v = _random_nodes(space, seed), _random_nodes(space, seed + 1)
    Lu, LTv = operator.apply(rates, u), operator.apply_transpose(rates, v)
    scale = np.sqrt(_dot(space, Lu, Lu) * _dot(space, v, v))
    assert (np.abs(_dot(space, Lu, v) - _dot(space, u, LTv)) <= 1e-12 * scale).all()


@pytest.mark.ranks
@given(st.integers(0, 2**32), st.sampled_from([0.0, 1e-3, 0.1, 10.0]), st.sampled_from([1e-3, 1.0, 100.0]))
def test_flux_form_conserves_mass(seed: int, epsilon: float, size: float) -> None:
    """Catches a flux that leaves one node and does not arrive at the other, as on a partition boundary."""
    space = _shared_space()
    operator, _, rates = _random_rates(space, epsilon, size, seed)
    Lu = operator.apply(rates, _random_nodes(space, seed))
    owned = slice(0, space.owned)
    total = allreduce(space.comm, Lu[:, owned].sum(axis=1))
    gross = allreduce(space.comm, np.abs(Lu[:, owned]).sum(axis=1))
    assert (np.abs(total) <= 1e-14 * gross * np.sqrt(space.nodes)).all()
    ones = np.ones((2, len(space.x)))
    assert np.abs(operator.apply_transpose(rates, ones)).max(initial=0.0) == 0.0


def _shared_space() -> Space:
    from meshes.build import GENERATORS
    from solver.parallel import on_root
    from solver.space import create_space

    if not _CACHE:
        comm = MPI.COMM_WORLD
        _CACHE.append(create_space(comm, on_root(comm, lambda: GENERATORS["sphere"](0.4), share=False), 3))
    return _CACHE[0]


_CACHE: list[Space] = []


@pytest.mark.ranks
@pytest.mark.parametrize("epsilon", [0.003, 0.1, 2.0])
@pytest.mark.parametrize(("manifold", "h"), [("circle", 0.1), ("sphere", 0.35)])
def test_flux_vanishes_on_the_gibbs_state(manifold: str, h: float, epsilon: float, make_space: MakeSpace) -> None:
    """Catches a scheme that is not well balanced: L μ = 0 for μ ∝ e^{V/ε}, also where μ spans hundreds of decades."""
    space = make_space(manifold, h)
    V = 0.5 * np.exp(space.x[:, 0]) + 0.2 * space.x[:, 1] ** 2
    V -= 1.5
    i, j = space.edges.T
    operator = EdgeAveragedOperator(space, epsilon)
    rates = operator.rates((V[j] - V[i])[None])
    mu = np.exp(V / epsilon)[None]
    residual = operator.apply(rates, mu)
    gross = space.sum_to_nodes(rates.forward * mu[:, i], rates.backward * mu[:, j])
    owned = slice(0, space.owned)
    assert (np.abs(residual[:, owned]) <= 1e-13 * (1 + 1 / epsilon) * gross[:, owned]).all()


@pytest.mark.ranks
def test_no_drift_is_the_stiffness_matrix(make_space: MakeSpace) -> None:
    """Catches a wrong factor of ε: L(0) = ε K, whose quadratic form is ε ∫|∇u|²."""
    space = make_space("sphere", 0.35)
    operator = EdgeAveragedOperator(space, 0.3)
    u = (space.x[:, 0] + space.x[:, 1] ** 2)[None]
    Lu = operator.apply(operator.rates(np.zeros((1, len(space.edges)))), u)
    cells = slice(None)
    energy = allreduce(space.comm, space.cell_size[cells] @ (space.gradient(u[0]) ** 2).sum(axis=-1))
    # Cells at partition boundaries belong to one rank each: no ghost layer.
    assert float(_dot(space, Lu, u)[0]) == pytest.approx(0.3 * float(energy), rel=1e-12)


@pytest.mark.ranks
@pytest.mark.parametrize("epsilon", [0.05, 1.0])
def test_drift_sensitivity_against_differences(epsilon: float, make_space: MakeSpace) -> None:
    """Catches a wrong sign or end in ∂(pᵀLu)/∂d, the heart of the adjoint."""
    space = make_space("sphere", 0.35)
    operator, d, _ = _random_rates(space, epsilon, 0.3, 3)
    p, u = _random_nodes(space, 5), _random_nodes(space, 6)
    direction = np.random.default_rng([7, space.comm.rank]).standard_normal(d.shape)
    exact = allreduce(space.comm, (operator.drift_sensitivity(operator.slopes(d), p, u) * direction).sum(axis=1))

    def value(s: float) -> np.ndarray:
        return _dot(space, p, operator.apply(operator.rates(d + s * direction), u))

    step = 1e-3 * epsilon
    difference = (value(-2 * step) - 8 * value(-step) + 8 * value(step) - value(2 * step)) / (12 * step)
    assert difference == pytest.approx(exact, rel=1e-8)
