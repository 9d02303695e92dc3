"""D ≥ c_PL Δ near a minimum of E."""

from __future__ import annotations

from mpi4py import MPI

import numpy as np
import pytest
from theory_cases import small_case

from solver.problem import Problem
from solver.theory.equilibrium import Equilibrium, TheoryError, equilibrium_near
from solver.theory.inequality import along_mode, sample_inequality


def _cluster(h: float, epsilon: float, comm: MPI.Comm = MPI.COMM_WORLD) -> Equilibrium:
    return equilibrium_near(Problem(small_case("circle", h, epsilon, (1.0, 0.65)), comm), np.array([1.0, 0.0]))


@pytest.mark.serial
@pytest.mark.parametrize("epsilon", [0.1, 0.01])
def test_no_violation_among_a_thousand_relative_perturbations(epsilon: float) -> None:
    """Catches a wrong a₁, D or Δ: c_PL = 2a₁ holds on all of them, and 2.2 times the cluster's rate does not."""
    equilibrium = _cluster(0.02, epsilon)
    slowest = equilibrium.slow_modes(1)[0].rate
    found = sample_inequality(equilibrium, "relative", 2 * slowest, 0.04, 1000)
    assert len(found.ratios) == 1000
    assert 0.0 < found.gaps.min() < found.gaps.max() <= 0.04
    assert found.violations == 0
    cluster = equilibrium.cluster_modes(1)[0].rate
    assert found.smallest < 2.2 * cluster  # the bound is not empty: some come near the slowest mode of the cluster


@pytest.mark.serial
def test_gaps_are_spread_up_to_the_limit() -> None:
    """Catches perturbations that are all tiny, or larger than allowed."""
    found = sample_inequality(_cluster(0.05, 0.1), "tilted", 0.8, 0.03, 200)
    assert found.gaps.max() <= 0.03
    np.testing.assert_allclose(np.percentile(found.gaps, [25, 50, 75]), [0.0075, 0.015, 0.0225], rtol=0.02)


@pytest.mark.serial
def test_mass_carried_to_the_hilltop_breaks_the_inequality() -> None:
    """Catches a test too weak to fail: outside the relative neighbourhood some densities relax more slowly."""
    equilibrium = _cluster(0.02, 0.01)
    slowest = equilibrium.slow_modes(1)[0].rate
    assert sample_inequality(equilibrium, "tilted", 2 * slowest, 0.04, 1000).violations > 0


@pytest.mark.serial
@pytest.mark.parametrize("epsilon", [0.1, 0.05])
def test_ratio_along_the_slowest_mode(epsilon: float) -> None:
    """Catches a D or Δ that is off to second order: D/Δ tends to 2a₁, within 2 % and linearly in the size."""
    equilibrium = _cluster(0.02, epsilon)
    mode = equilibrium.slow_modes(1)[0]
    ratios = along_mode(equilibrium, mode, np.array([1e-1, 1e-2, 1e-3, 1e-6]))
    assert ratios[1] == pytest.approx(2 * mode.rate, rel=0.02)
    errors = np.abs(ratios / (2 * mode.rate) - 1.0)
    np.testing.assert_allclose(errors[:2] / errors[1:3], 10.0, rtol=0.3)
    assert errors[3] < 1e-5


@pytest.mark.serial
def test_mode_where_the_density_underflows_is_refused() -> None:
    """Catches a ratio of two underflows."""
    equilibrium = _cluster(0.02, 0.002)
    with pytest.raises(TheoryError, match="round-off"):
        along_mode(equilibrium, equilibrium.slow_modes(1)[0], np.array([0.01]))


@pytest.mark.ranks
def test_samples_do_not_depend_on_ranks() -> None:
    """Catches random fields or sums that depend on the partition."""
    found, alone = (
        sample_inequality(_cluster(0.1, 0.1, comm), "relative", 0.8, 0.04, 5)
        for comm in (MPI.COMM_WORLD, MPI.COMM_SELF)
    )
    np.testing.assert_allclose(found.ratios, alone.ratios, rtol=1e-9)
    np.testing.assert_allclose(found.gaps, alone.gaps, rtol=1e-9)
