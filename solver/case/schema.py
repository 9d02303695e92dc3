"""The case file as frozen models: every key with its type, allowed values, default and meaning (docs/case.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from solver.case.auxiliary import Auxiliary
from solver.case.factories import OWN
from solver.case.fields import (
    Direction,
    Flag,
    Integer,
    Parameters,
    Real,
    Section,
    Shares,
    Spectrum,
    SymmetricMatrix,
    Vector,
    key,
    one_of,
    unit,
)

__all__ = ["DIMENSIONS", "SELECTORS", "Case", "alternatives"]

SELECTORS = {
    "geometry": "manifold",
    "attention": "kernel",
    "ffn": "activation",
    "initial": "law",
    "depth": "grid",
    "objective": "loss",
    "optimizer": "method",
    "auxiliary": "kernel",
}
DIMENSIONS = {"circle": 2, "sphere": 3}
_WORDS = ("bag_of_words",)


class Geometry(Section):
    """Where tokens live, and the mesh."""

    manifold: Literal["circle", "sphere", "hypersphere"] = key(
        ..., "'circle', 'sphere' or, for particles, 'hypersphere'", "the unit sphere S^{d−1} tokens live on"
    )
    dimension: Integer | None = key(None, "an integer between 2 and 1000", "d", only=("hypersphere",), ge=2, le=1000)
    h: Real | None = key(
        None, "a number above 0 and up to 1", "target edge length (default 0.1 sphere, 0.02 circle)", "rad", gt=0, le=1
    )
    continuation: Vector = key(
        (), "a falling list of numbers; those up to h are left out", "coarser edge lengths solved first", "rad"
    )
    file: Path | None = key(None, "path of a .msh file, instead of h", "mesh to use; relative to the case file")
    allow_coarse: Flag = key(False, "true or false", "train although the mesh pins the cluster")


class Attention(Section):
    """The attention kernel h, by default e^{⟨x,Ay⟩}."""

    kernel: Annotated[str, one_of("exponential")] = key(
        "exponential", "'exponential' or 'module:factory'", "kernel; a factory of yours returns h(x, y)"
    )
    parameters: Parameters | None = key(None, "a table", "keyword arguments of your kernel's factory", only=(OWN,))
    eigenvalues: Spectrum | None = key(None, "d numbers between 0 and 50 (or give matrix)", "diagonal of A")
    matrix: SymmetricMatrix | None = key(
        None, "d rows of d numbers, symmetric positive semidefinite (or give eigenvalues)", "A"
    )
    normalized: Flag = key(False, "true or false", "softmax attention, V = log ∫ h dμ")
    tolerance: Real = key(
        1e-10, "a number between 1e-13 and 0.01", "relative accuracy of the separable expansion", ge=1e-13, le=1e-2
    )


class Noise(Section):
    """Diffusion."""

    epsilon: Real = key(
        ..., "a number between 0 and 1e6", "diffusion ε of the PDE; √(2ε) dB for particles", "1/depth", ge=0, le=1e6
    )


class Ffn(Section):
    """The features σ of the trained drift W σ(x)."""

    activation: Annotated[str, one_of("identity", "tanh", "relu", "gelu")] = key(
        "identity",
        "'identity', 'tanh', 'relu', 'gelu' or 'module:factory'",
        "activation of the features; a factory of yours returns a function of arrays",
    )
    parameters: Parameters | None = key(None, "a table", "keyword arguments of your activation's factory", only=(OWN,))
    bias: Flag = key(False, "true or false", "append the constant feature 1")
    width: Integer = key(
        0, "an integer between 0 and 4096", "number of random features act(Ux + b); 0: act(x)", ge=0, le=4096
    )
    seed: Integer = key(0, "an integer ≥ 0", "seed of the random features", ge=0)


class Initial(Section):
    """The law of the tokens at depth 0."""

    law: Literal["von_mises_fisher", "uniform", "mixture", "file"] = key(
        "von_mises_fisher", "'von_mises_fisher', 'uniform', 'mixture' or 'file'", "initial law"
    )
    mean: Direction | None = key(
        None, "d numbers, not all zero", "mean direction, normalised (default (e₁+e₂)/√2)", only=("von_mises_fisher",)
    )
    kappa: Real = key(
        3.0,
        "a number ≥ 0 that the mesh can carry, κ ≤ 1/h²",
        "concentration κ; of a file: of the bump about each point",
        only=("von_mises_fisher", "file"),
        ge=0,
    )
    means: tuple[Direction, ...] | None = key(
        None, "a list of directions", "mean directions, normalised", only=("mixture",)
    )
    kappas: Vector | None = key(
        None, "a number ≥ 0 that the mesh can carry for each of the means", "concentrations", only=("mixture",)
    )
    weights: Shares | None = key(
        None, "a number ≥ 0 for each of the means", "shares (default equal)", only=("mixture",)
    )
    file: Path | None = key(
        None,
        "path of a .npz or .csv file with points and a column 'density' or 'weight'",
        "nodal values on any mesh, or points with weights; relative to the case file",
        only=("file",),
    )
    perturbation: Real = key(
        0.0,
        "a number from 0 up to 0.99",
        "relative size of a smooth random perturbation of the density, which varies with the label",
        ge=0,
        le=0.99,
    )
    seed: Integer = key(0, "an integer ≥ 0", "seed of the perturbation", ge=0)


class Depth(Section):
    """Depth grid and scheme. Depth is time; T/Δt is the number of layers."""

    T: Real = key(..., "a number above 0 (1e-9 to 1e9)", "depth of the network", "depth", ge=1e-9, le=1e9)
    grid: Literal["graded", "uniform"] = key("graded", "'graded' or 'uniform'", "kind of depth grid")
    first_step: Real = key(0.05, "a number above 0", "step over the first and last `layer`", "depth", ("graded",), gt=0)
    layer: Real = key(4.0, "a number ≥ 0", "depth of the finely resolved ends", "depth", ("graded",), ge=0)
    growth: Real = key(
        1.3, "a number between 1 and 10", "growth of steps towards the middle", only=("graded",), ge=1, le=10
    )
    steps: Integer | None = key(None, "an integer ≥ 1", "number of equal steps", only=("uniform",), ge=1)
    scheme: Literal["mprk2", "euler"] = key("mprk2", "'mprk2' or 'euler'", "depth step")


class Objective(Section):
    """What training minimises: loss(μ̄_T) + (λ_reg/2) ∫‖W‖² dt."""

    loss: Annotated[str, one_of("align", "bag_of_words")] = key(
        "align", "'align', 'bag_of_words' or 'module:factory'", "terminal loss"
    )
    parameters: Parameters | None = key(None, "a table", "keyword arguments of your loss's factory", only=(OWN,))
    target: Direction | None = key(
        None, "d numbers, not all zero", "direction, normalised (default e₂)", only=("align",)
    )
    candidates: Integer = key(
        8, "an integer between 1 and 100000", "number K of candidate vectors c_k", only=_WORDS, ge=1, le=100_000
    )
    kappa: Real = key(
        5.0, "a number between 0 and 1e8", "concentration of their von Mises–Fisher law", only=_WORDS, ge=0, le=1e8
    )
    mean: Direction | None = key(None, "d numbers, not all zero", "its mean, normalised (default e₁)", only=_WORDS)
    seed: Integer = key(0, "an integer ≥ 0", "seed of the candidates", only=_WORDS, ge=0)
    file: Path | None = key(
        None, "path of a .npz or .csv file of points", "candidates, instead of drawing them", only=_WORDS
    )
    temperature: Real = key(1.0, "a number between 0.01 and 1e6", "τ of the softmax", only=_WORDS, ge=0.01, le=1e6)
    readout: Literal["token", "pooled"] = key(
        "token", "'token' or 'pooled'", "softmax of every token, or of the mean token", only=_WORDS
    )
    histogram: Shares | None = key(
        None, "K numbers ≥ 0, not all zero", "target shares q, normalised (default uniform)", only=_WORDS
    )
    regularization: Real = key(0.01, "a number ≥ 0", "λ_reg", ge=0)


class Optimizer(Section):
    """How the control is found."""

    method: Literal["lbfgs", "sweep", "gradient", "none"] = key(
        "lbfgs",
        "'lbfgs', 'sweep', 'gradient' or 'none'",
        "'lbfgs': quasi-Newton; 'sweep': forward-backward sweeps, the damped fixed point of W = −(1/λ_reg) Σρ∫∇φσᵀdμ "
        "(needs λ_reg > 0); 'gradient': descent; 'none' runs the start control as it is",
    )
    start: str = key(
        "zero",
        "'zero', 'steer' or the path of a control.npz",
        "first control; steer: to the saddle at once, on to the target in time; a path is relative to the case file",
    )
    max_iterations: Integer = key(
        200,
        "an integer ≥ 0",
        "iterations on each mesh; one costs an evaluation (forward and adjoint sweep), and another for every trial "
        "that does not lower J: 1 to 2 in all; with fixed steps exactly 1",
        ge=0,
    )
    gradient_tolerance: Real = key(
        1e-3, "a number above 0", "L² gradient norm relative to W = 0 on the same mesh (floor 1e-10)", gt=0
    )
    step: Annotated[Real, Field(gt=0)] | Literal["armijo"] = key(
        "armijo",
        "a number above 0 or 'armijo'",
        "α of fixed steps W ← W − αg, all on the finest mesh (one from W = 0 is P1's 1-GD); or steps such that J "
        "decreases sufficiently",
        only=("gradient",),
    )
    relaxation: Real = key(
        0.5,
        "a number above 0 and up to 1",
        "first relaxation ω, adapted to the curvature from then on",
        only=("sweep",),
        gt=0,
        le=1,
    )
    anderson: Integer = key(
        5,
        "an integer between 0 and 50",
        "memory of Anderson's acceleration; 0 switches it off",
        only=("sweep",),
        ge=0,
        le=50,
    )


class Particles(Section):
    """The N-token system, for `python -m solver.particles`; the PDE ignores it."""

    n: Integer = key(64, "an integer between 1 and 1e8", "number N of tokens", ge=1, le=100_000_000)
    seeds: Integer = key(1, "an integer ≥ 1", "number of systems, each with initial tokens and noise of its own", ge=1)
    seed: Integer = key(0, "an integer ≥ 0", "seed of the first system; the others follow", ge=0, le=2**62)
    steps: Real = key(
        10.0,
        "a number above 0 and up to 1e6",
        "equal depth steps per unit of depth; should exceed the fastest rate of attention, λ₁e^{λ₁} (βe^β for A = βI, "
        "softmax: λ₁), else a warning",
        "1/depth",
        gt=0,
        le=1e6,
    )
    attention: Literal["auto", "separable", "dense"] = key(
        "auto", "'auto', 'separable' or 'dense'", "through the expansion, O(N·rank), or all pairs; auto: the cheaper"
    )


class Output(Section):
    """What is written where."""

    directory: Path | None = key(None, "a path", "results folder; relative to the case file (default results/<case>)")
    frames: Integer = key(81, "an integer ≥ 2", "depths at which densities are saved", ge=2)
    formats: tuple[Literal["vtx", "vtk"], ...] = key(
        ("vtx", "vtk"), "a list of 'vtx' and 'vtk'", "density.bp (vtx), density.pvd (vtk)"
    )
    figures: Flag = key(
        True,
        "true or false",
        "draw figures/ when the PDE is solved; tokens are drawn by `python -m postprocess.figures DIR` only",
    )


class Case(Section):
    """A resolved case."""

    title: str = key("", "text", "name of the case (default: the file's name)")
    geometry: Geometry
    attention: Attention
    noise: Noise
    ffn: Ffn = Ffn()
    initial: Initial = Initial()
    depth: Depth
    objective: Objective = Objective()
    optimizer: Optimizer = Optimizer()
    auxiliary: Auxiliary = Auxiliary()
    particles: Particles = Particles()
    output: Output = Output()
    petsc: dict[str, str | Flag | Integer | Real] = key(
        {}, "text, a number or true/false", "options of the linear solver"
    )

    @property
    def dimension(self) -> int:
        """d of S^{d-1}."""
        return DIMENSIONS.get(self.geometry.manifold) or self.geometry.dimension or 2

    @property
    def matrix(self) -> tuple[Vector, ...]:
        """A, d rows."""
        if self.attention.matrix is not None:
            return self.attention.matrix
        values = self.attention.eigenvalues or ()
        return tuple(tuple(value if i == j else 0.0 for j in range(len(values))) for i, value in enumerate(values))

    @property
    def initial_mean(self) -> Vector:
        """Unit mean direction of the initial law."""
        return unit(self.initial.mean or self._axes(0, 1))

    @property
    def mixture(self) -> tuple[tuple[Vector, ...], Vector, Vector]:
        """Unit means, concentrations and shares of a mixture."""
        means = tuple(map(unit, self.initial.means or ()))
        return means, self.initial.kappas or (), self.initial.weights or (1.0,) * len(means)

    @property
    def sharpest_kappa(self) -> tuple[str, float]:
        """Key and value of the largest concentration of the initial law (0 where it has none)."""
        if self.initial.law == "mixture":
            return "initial.kappas", max(self.initial.kappas or (0.0,))
        return "initial.kappa", self.initial.kappa if self.initial.law in {"von_mises_fisher", "file"} else 0.0

    @property
    def candidates_mean(self) -> Vector:
        """Unit mean direction of the candidates."""
        return unit(self.objective.mean or self._axes(0))

    @property
    def target(self) -> Vector:
        """Unit target direction."""
        return unit(self.objective.target or self._axes(1))

    def _axes(self, *numbers: int) -> Vector:
        """Sum of some unit vectors."""
        return tuple(float(k in numbers) for k in range(self.dimension))


def alternatives(section: str) -> dict[str, list[str]]:
    """Keys of a section that mean something with some values of its selector only: key → these values."""
    model = Case.model_fields[section].annotation
    assert isinstance(model, type)
    assert issubclass(model, Section)
    extras = {name: info.json_schema_extra for name, info in model.model_fields.items()}
    found = {name: extra["only"] for name, extra in extras.items() if isinstance(extra, dict)}
    return {name: [str(value) for value in only] for name, only in found.items() if isinstance(only, list) and only}
