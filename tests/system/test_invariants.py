"""What always holds (docs/model.md), on random cases: ε from 0, |W| up to 10, Δt from 1e-3 to 100."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from system.studies import make_case

from solver.operator import EdgeAveragedOperator
from solver.parallel import allreduce
from solver.problem import Problem
from solver.schemes import Step
from solver.theory.stationary import stationary_state

MANIFOLDS = ("circle", "sphere")
SCHEMES = ("mprk2", "euler")
SERIAL = pytest.mark.serial
MESH = {"circle": 0.15, "sphere": 0.45}
LU = {"petsc__ksp_type": "preonly", "petsc__pc_type": "lu"}


def lu_settings() -> dict[str, Any]:
    """A direct solver by the case's [petsc] table."""
    return LU if MPI.COMM_WORLD.size == 1 else {**LU, "petsc__pc_factor_mat_solver_type": "mumps"}


def random_problem(
    seed: int, manifold: str, epsilon: float, dt: float, scheme: str, comm: MPI.Comm = MPI.COMM_WORLD, **options: Any
) -> Problem:
    """Random A (positive semidefinite, of any rank), initial law, mesh size and number of steps."""
    generator = np.random.default_rng(seed)
    d = {"circle": 2, "sphere": 3}[manifold]
    Q, _ = np.linalg.qr(generator.standard_normal((d, d)))
    spectrum = generator.uniform(0.0, 2.5, d) * (generator.random(d) > 0.2)
    A = (Q * spectrum) @ Q.T
    h = MESH[manifold] * float(generator.uniform(0.8, 1.3))
    steps = int(generator.integers(3, 9))
    case = make_case(
        manifold,
        h,
        epsilon,
        steps * dt,
        steps,
        depth__scheme=scheme,
        attention__matrix=[[float(value) for value in row] for row in 0.5 * (A + A.T)],
        initial__mean=[float(value) for value in generator.standard_normal(d)],
        initial__kappa=float(generator.uniform(0.0, 2.5)),
        objective__target=[float(value) for value in generator.standard_normal(d)],
        ffn__activation=str(generator.choice(["identity", "tanh", "relu", "gelu"])),
        ffn__bias=bool(generator.random() > 0.5),
        **options,
    )
    return Problem(case, comm)


def random_control(problem: Problem, size: float, seed: int) -> np.ndarray:
    """Independent in every step, of Frobenius norm `size` in each."""
    W = np.random.default_rng(seed + 1).standard_normal(problem.control_shape)
    return size * W / np.linalg.norm(W, axis=(1, 2), keepdims=True)


def stiffness(problem: Problem, steps: list[Step]) -> float:
    """Largest ‖M⁻¹L‖ = ‖LM⁻¹‖₁ = 2 max_i (rate of leaving node i) over the stages of a run."""
    space, dynamics = problem.space, problem.dynamics
    largest = 0.0
    for step in steps:
        for c in step.moments:
            rates = dynamics.operator.rates(dynamics.drift(c, step.W))
            leaving = space.sum_to_nodes(rates.forward, rates.backward)[:, : space.owned] / space.mass[: space.owned]
            largest = max(largest, 2.0 * float(leaving.max(initial=0.0)))
    return float(allreduce(space.comm, largest, MPI.MAX))


def densities(problem: Problem, steps: list[Step]) -> list[np.ndarray]:
    return [problem.initial, *(step.after for step in steps)]


def assert_conserved(problem: Problem, steps: list[Step], bound: float) -> None:
    """Mass within `bound`, times max(1, Δt ‖M⁻¹L‖)."""
    error = max(float(np.abs(problem.space.integrate(mu) - 1.0).max()) for mu in densities(problem, steps))
    limit = bound * max(1.0, float(problem.dt.max()) * stiffness(problem, steps))
    assert error <= limit


def assert_not_negative(problem: Problem, steps: list[Step], bound: float) -> None:
    """Density ≥ −bound · max μ."""
    space = problem.space
    for mu in densities(problem, steps):
        owned = mu[:, : space.owned]
        lowest = float(allreduce(space.comm, owned.min(initial=np.inf), MPI.MIN))
        highest = float(allreduce(space.comm, owned.max(initial=-np.inf), MPI.MAX))
        assert lowest >= -bound * highest


def energies(problem: Problem, steps: list[Step], W: np.ndarray) -> np.ndarray:
    return problem.trajectory(steps, W).energy


def assert_energy_falls(problem: Problem, steps: list[Step]) -> None:
    E = energies(problem, steps, problem.zero_control())
    assert np.isfinite(E).all()
    assert (np.diff(E) <= 1e-11 * np.abs(E).max()).all()


# ε = 0 and the ends of the other ranges are drawn often.
epsilons = st.one_of(st.just(0.0), st.floats(-3.0, 0.0).map(lambda power: 10.0**power))
step_sizes = st.one_of(st.sampled_from([1e-3, 1e2]), st.floats(-3.0, 2.0).map(lambda power: 10.0**power))
sizes = st.one_of(st.sampled_from([0.0, 10.0]), st.floats(0.0, 10.0))
runs = {
    "seed": st.integers(0, 2**31),
    "manifold": st.sampled_from(MANIFOLDS),
    "epsilon": epsilons,
    "dt": step_sizes,
    "scheme": st.sampled_from(SCHEMES),
    "size": sizes,
}


def check_random_run(seed: int, manifold: str, epsilon: float, dt: float, scheme: str, size: float) -> None:
    problem = random_problem(seed, manifold, epsilon, dt, scheme)
    W = random_control(problem, size, seed)
    steps = problem.steps(W)
    assert_not_negative(problem, steps, 1e-13)
    assert_conserved(problem, steps, 1e-11)
    assert problem.objective(steps[-1].after, W)[0] >= 0.0
    if scheme == "euler":
        assert_energy_falls(problem, problem.steps(None))


@settings(max_examples=40 if MPI.COMM_WORLD.size == 1 else 15)
@given(**runs)
def test_random_runs_keep_sign_and_mass_and_euler_never_gains_energy(**run: Any) -> None:
    """Catches a column of L or L̃ that does not add up, a Krylov residual that leaks mass, a wrong sign at large Δt."""
    check_random_run(**run)


@pytest.mark.slow
@settings(max_examples=200)
@given(**runs)
def test_200_random_runs_keep_sign_and_mass_and_euler_never_gains_energy(**run: Any) -> None:
    """As above, on 200 cases: catches the rare hard system (stiff, far from symmetric) where Krylov methods fail."""
    check_random_run(**run)


@settings(max_examples=10 if MPI.COMM_WORLD.size == 1 else 4)
@example(seed=1, manifold="sphere", epsilon=0.0, dt=100.0, scheme="mprk2", size=10.0)
@given(**runs)
def test_direct_solves_are_exactly_nonnegative_and_conserve_more(
    seed: int, manifold: str, epsilon: float, dt: float, scheme: str, size: float
) -> None:
    """Catches pivoting that breaks an M-matrix's signs, and a [petsc] table that does not give LU when asked to."""
    problem = random_problem(seed, manifold, epsilon, dt, scheme, **lu_settings())
    steps = problem.steps(random_control(problem, size, seed))
    assert_not_negative(problem, steps, 0.0)
    assert_conserved(problem, steps, 1e-12)


@pytest.mark.parametrize("scheme", ["mprk2", pytest.param("euler", marks=SERIAL)])
@pytest.mark.parametrize("manifold", [pytest.param("circle", marks=SERIAL), "sphere"])
@pytest.mark.parametrize("epsilon", [pytest.param(0.0, marks=SERIAL), 0.02])
def test_long_run_keeps_mass_without_any_allowance(manifold: str, scheme: str, epsilon: float) -> None:
    """200 steps at Δt ≤ 0.1, ‖W‖ ≤ 1: catches mass errors that add up from step to step."""
    problem = Problem(make_case(manifold, 2 * MESH[manifold] / 3, epsilon, 20.0, 200, depth__scheme=scheme))
    W = random_control(problem, 1.0, 3)
    steps = problem.steps(W)
    masses = np.array([problem.space.integrate(mu) for mu in densities(problem, steps)])
    assert np.abs(masses - 1.0).max() <= 1e-11
    assert_not_negative(problem, steps, 1e-13)


@SERIAL
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("manifold", MANIFOLDS)
@pytest.mark.parametrize("epsilon", [0.0, 1e-3])
def test_align_stays_nonnegative_when_all_tokens_reach_the_target(manifold: str, scheme: str, epsilon: float) -> None:
    """The control draws everything to the target: catches a loss below 0 bought by negative densities (as SDIRK2)."""
    target = np.eye(3 if manifold == "sphere" else 2)[0]
    case = make_case(
        manifold,
        MESH[manifold],
        epsilon,
        20.0,
        100,
        depth__scheme=scheme,
        objective__target=[float(v) for v in target],
        ffn__bias=True,
    )
    problem = Problem(case)
    W = problem.zero_control()
    W[:, :, -1] = 10.0 * target  # the constant feature: downhill from everywhere
    final = problem.steps(W)[-1].after
    loss, _ = problem.objective(final, W)
    excess = max(0.0, float(problem.space.integrate(final)[0]) - 1.0)  # with all mass on one vertex loss = 1 − mass
    assert -excess - 4 * np.finfo(float).eps <= loss < 0.1


@SERIAL  # fewer steps on 3 ranks: test_gibbs_state_stays_fixed
@pytest.mark.parametrize(
    ("scheme", "manifold", "epsilon", "dt", "sign"),
    [
        ("mprk2", "circle", 0.02, 0.1, 1),
        ("euler", "circle", 0.1, 1.0, -1),
        ("euler", "sphere", 0.05, 0.1, 1),
        ("mprk2", "sphere", 0.1, 1.0, -1),
    ],
)
def test_gibbs_state_stays_for_1000_steps(scheme: str, manifold: str, epsilon: float, dt: float, sign: int) -> None:
    """Catches a scheme that drifts off equilibria, or potentials and β that do not vanish on μ ∝ e^{V/ε} together."""
    d = 3 if manifold == "sphere" else 2
    mean = [float(sign), *([0.0] * (d - 1))]
    problem = Problem(
        make_case(manifold, MESH[manifold], epsilon, 1000 * dt, 1000, depth__scheme=scheme, initial__mean=mean)
    )
    state = stationary_state(problem.space, problem.attention, problem.label_weights, problem.epsilon, problem.initial)
    assert float(problem.space.integrate(state.mu[0] * problem.space.x[:, 0])) * sign > 0.8
    problem.initial = state.mu
    final = problem.steps(None)[-1].after
    distance = float(allreduce(problem.comm, np.abs(final - state.mu).max(initial=0.0), MPI.MAX))
    highest = float(allreduce(problem.comm, state.mu.max(initial=0.0), MPI.MAX))
    assert distance <= 1e-9 * highest


def assert_taylor_order_two(problem: Problem, W: np.ndarray, seed: int) -> None:
    """Order of |J(W + sδ) − J(W) − s⟨g, δ⟩| in [1.95, 2.05], at the smallest s that stands out of round-off."""
    common = np.random.default_rng(seed).standard_normal(problem.control_shape[1:])  # seen by the curvature of J
    direction = common / np.linalg.norm(common) + random_control(problem, 0.5, seed)
    problem.gradient(0.5 * W + direction)  # the stored evaluation must not be the one at W
    J, g = problem.gradient(W)
    slope = float(problem.dt @ (g * direction).sum(axis=(1, 2)))
    remainders: list[float] = []
    s = 0.2
    while len(remainders) < 12:
        control = W + s * direction
        shifted = sum(problem.objective(problem.steps(control)[-1].after, control))
        remainder = abs(shifted - J - s * slope)
        if remainder < 1e-12:
            break
        remainders.append(remainder)
        s /= 3.0
    assert len(remainders) >= 3, remainders
    assert 1.95 <= np.log(remainders[-2] / remainders[-1]) / np.log(3.0) <= 2.05, remainders


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("manifold", MANIFOLDS)
@pytest.mark.parametrize("size", [pytest.param(0.0, marks=SERIAL), 1.0, pytest.param(10.0, marks=SERIAL)])
def test_gradient_passes_the_taylor_test(manifold: str, scheme: str, size: float) -> None:
    """Catches any wrong transpose: of β′, of the moments, of the Patankar ratio, of the √Δt weights."""
    problem = Problem(make_case(manifold, MESH[manifold], 0.05, 1.0, 10, depth__scheme=scheme))
    assert_taylor_order_two(problem, random_control(problem, size, 11), 23)


@pytest.mark.ranks
def test_gradient_passes_the_taylor_test_on_any_number_of_ranks() -> None:
    """Catches an adjoint that forgets ghosts, or a gradient that not every rank has in full."""
    problem = Problem(make_case("sphere", MESH["sphere"], 0.05, 0.4, 4))
    assert_taylor_order_two(problem, random_control(problem, 3.0, 11), 23)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    seed=runs["seed"],
    manifold=runs["manifold"],
    epsilon=st.floats(-2.0, 0.0).map(lambda power: 10.0**power),
    dt=st.floats(-2.0, -1.0).map(lambda power: 10.0**power),
    scheme=runs["scheme"],
    size=sizes,
)
def test_gradient_passes_the_taylor_test_on_random_cases(
    seed: int, manifold: str, epsilon: float, dt: float, scheme: str, size: float
) -> None:
    """Catches a transpose that is wrong only for some features, kernels, ε or Δt."""
    problem = random_problem(seed, manifold, epsilon, dt, scheme)
    assert_taylor_order_two(problem, random_control(problem, size, seed), seed + 5)


@pytest.fixture(scope="module", params=MANIFOLDS)
def any_problem(request: pytest.FixtureRequest) -> Problem:
    return Problem(make_case(request.param, MESH[request.param], 0.02, 1.0, 10))


@pytest.mark.ranks
@settings(max_examples=10)
@given(seed=st.integers(0, 2**31), epsilon=epsilons, size=st.sampled_from([0.0, 1e-3, 1.0, 10.0]))
def test_operator_and_its_transpose_are_transposes(
    any_problem: Problem, seed: int, epsilon: float, size: float
) -> None:
    """⟨Lu, v⟩ = ⟨u, Lᵀv⟩: catches swapped ends of an edge, and edges counted twice or never between ranks."""
    space = any_problem.space
    operator = EdgeAveragedOperator(space, epsilon)
    A, B, C = np.random.default_rng(seed).standard_normal((3, space.dimension, space.dimension))

    def field(matrix: np.ndarray) -> np.ndarray:  # the same function of x on any number of ranks
        return np.sin(3 * space.x @ matrix).sum(axis=1)[None]

    u, v, potential = field(A), field(B), size * field(C)
    i, j = space.edges.T
    rates = operator.rates(potential[:, j] - potential[:, i])
    forward = operator.apply(rates, u)[:, : space.owned] * v[:, : space.owned]
    backward = u[:, : space.owned] * operator.apply_transpose(rates, v)[:, : space.owned]
    parts = [forward.sum(), backward.sum(), np.abs(forward).sum(), np.abs(backward).sum()]
    left, right, *scales = allreduce(space.comm, np.array(parts))
    assert abs(left - right) <= 1e-12 * max(scales)


@pytest.mark.ranks
@settings(max_examples=10)
@given(seed=st.integers(0, 2**31))
def test_mean_field_and_its_transpose_are_transposes(any_problem: Problem, seed: int) -> None:
    """⟨d(μ, W), e⟩ = ⟨(μ, W), dᵀe⟩: catches a lost mass factor or moments summed over the ghosts too."""
    space, dynamics = any_problem.space, any_problem.dynamics
    generator = np.random.default_rng(seed)
    A, B, C = generator.standard_normal((3, space.dimension, space.dimension))
    mu = 1.5 + np.sin(2 * space.x @ A).mean(axis=1)[None]
    W = generator.standard_normal((space.dimension, space.dimension))
    i, j = space.edges.T
    d = dynamics.drift(dynamics.attention.moments(mu), W)
    e = ((space.x[j] - space.x[i]) @ B * (space.x[j] + space.x[i]) @ C).sum(axis=1)[None]
    mu_bar, W_bar = dynamics.drift_vjp(dynamics.attention.moments(mu), e)
    owned = slice(0, space.owned)
    parts = [(d * e).sum(), (mu_bar * mu)[:, owned].sum() + (W_bar * W).sum(), np.abs(d * e).sum()]
    left, right, scale = allreduce(space.comm, np.array(parts))
    assert abs(left - right) <= 1e-12 * scale


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("scheme", "manifold", "h", "epsilon"),
    [
        ("mprk2", "circle", 0.1, 0.02),
        ("mprk2", "sphere", 0.35, 0.02),
        ("euler", "sphere", 0.35, 0.02),
        ("mprk2", "circle", 1.0, 0.3),  # more ranks than cells
        ("euler", "circle", 0.1, 0.0),
    ],
)
def test_all_numbers_of_ranks_agree(scheme: str, manifold: str, h: float, epsilon: float) -> None:
    """J, gradient and final density here against one rank alone, to 1e-10, and the other invariants on the way.

    Catches ghosts out of date, a reduction over ghosts, and a stopping test that lets ranks differ.
    """
    case = make_case(manifold, h, epsilon, 1.0, 10, depth__scheme=scheme, initial__kappa=1.0)
    shared, alone = Problem(case, MPI.COMM_WORLD), Problem(case, MPI.COMM_SELF)
    W = random_control(shared, 1.0, 7)
    steps = {problem: problem.steps(W) for problem in (shared, alone)}
    (J, g), (J_alone, g_alone) = (
        (sum(problem.objective(run[-1].after, W)), problem.adjoint(run, W)[0]) for problem, run in steps.items()
    )
    assert abs(J - J_alone) <= 1e-10 * abs(J_alone)
    assert np.linalg.norm(g - g_alone) <= 1e-10 * np.linalg.norm(g_alone)
    assert np.ptp(MPI.COMM_WORLD.allgather(J)) == 0.0
    assert all(np.array_equal(g, other) for other in MPI.COMM_WORLD.allgather(g))
    together, separate = (problem.space.gather(run[-1].after) for problem, run in steps.items())
    if together is not None:
        assert separate is not None
        assert np.abs(together - separate).max() <= 1e-10 * separate.max()
    assert_conserved(shared, steps[shared], 1e-11)
    assert_not_negative(shared, steps[shared], 1e-13)
    if scheme == "euler":
        assert_energy_falls(shared, shared.steps(None))


@pytest.mark.ranks
@pytest.mark.parametrize(("manifold", "scheme"), [("circle", "mprk2"), ("sphere", "euler")])
def test_repeated_evaluations_have_identical_bits(manifold: str, scheme: str) -> None:
    """Catches warm starts or buffers carried over between evaluations, and anything unordered in the set-up."""
    case = make_case(manifold, MESH[manifold], 0.02, 0.4, 4, depth__scheme=scheme)
    problem = Problem(case)
    W = random_control(problem, 1.0, 7)
    J, g = problem.gradient(W)
    problem.gradient(-3.0 * W)
    for other in (problem, Problem(case)):
        J_again, g_again = other.gradient(W)
        assert J_again == J
        assert np.array_equal(g_again, g)
