"""Label kernels: frames, biases, and kernels of the user's."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from casefiles import GOOD
from scipy.linalg import expm
from scipy.spatial.transform import Rotation

from solver.attention.kernels import LinearKernel
from solver.auxiliary.kernels import DECAYS, FUNCTIONS, LABEL_KERNELS, LabelKernel, create_label_kernel
from solver.auxiliary.maps import MAPS, create_map
from solver.case import Case, CaseError, load_case
from solver.case import auxiliary as schema
from solver.types import FloatArray

pytestmark = pytest.mark.serial

Labelled = Callable[..., Case]
XI = np.array([0.0, 0.07, 0.25, 0.4, 0.93])
S = [[0.0, -1.0, 0.3], [1.0, 0.0, -0.5], [-0.3, 0.5, 0.0]]
S2 = [[0.0, 0.0, 2.0], [0.0, 0.0, 0.0], [-2.0, 0.0, 0.0]]


def frames_of(case: Case, labels: FloatArray) -> FloatArray:
    kernel = create_label_kernel(case)
    assert kernel.frames is not None
    assert kernel.bias is None
    assert kernel.content is None
    return kernel.frames(labels)


def bias_of(case: Case) -> Callable[[FloatArray, FloatArray], FloatArray]:
    kernel = create_label_kernel(case)
    assert kernel.bias is not None
    assert kernel.frames is None
    return kernel.bias


def test_names_are_those_of_the_schema(labelled: Labelled) -> None:
    """Catches a part that the case file does not know, and one that it knows and that is not there."""
    assert tuple(MAPS) == schema.MAPS
    assert tuple(FUNCTIONS) == schema.FUNCTIONS
    assert tuple(DECAYS) == schema.DECAYS
    fields = schema.Auxiliary.model_fields
    assert get_args(fields["decay"].annotation) == schema.DECAYS
    functions, _ = get_args(fields["functions"].annotation)  # tuple[Literal, ...] or None
    assert get_args(get_args(functions)[0]) == schema.FUNCTIONS
    with pytest.raises(CaseError) as caught:
        labelled(2, {"kernel": "alibi"})
    *names, own = re.findall(r"'([^']+)'", caught.value.lines[0].partition("is not allowed: ")[2])
    assert (tuple(names), own) == (tuple(LABEL_KERNELS), "module:factory")


def test_usa_has_neither_frames_nor_bias(labelled: Labelled) -> None:
    """Catches labels that matter where the case says they do not."""
    assert create_label_kernel(labelled(3, {"labels": 4})) == LabelKernel()


FRAMED: dict[str, tuple[int, dict[str, object]]] = {
    "rope": (2, {"kernel": "rope"}),
    "rope, planes": (3, {"kernel": "rope", "planes": [[1, 2], [3, 2]], "frequencies": [5.0, -1.3]}),
    "rope, d = 5": (5, {"kernel": "rope", "planes": [[1, 2], [3, 4], [5, 1]]}),
    "rope_general": (3, {"kernel": "rope_general", "generators": [S, S2], "functions": ["sine", "square"]}),
    "prefix": (3, {"kernel": "prefix", "map": "wave", "u": [1.0, 1.0, 1.0]}),
    "prefix, d = 5": (5, {"kernel": "prefix", "map": "uniform"}),
}


@pytest.mark.parametrize("name", FRAMED)
def test_frames_are_rotations(name: str, labelled: Labelled) -> None:
    """Catches frames that stretch or reflect, and a label's frame that depends on the other labels."""
    d, table = FRAMED[name]
    case = labelled(d, table)
    Q = frames_of(case, XI)
    assert Q.shape == (5, d, d)
    assert np.abs(Q @ Q.transpose(0, 2, 1) - np.eye(d)).max() <= 1e-13
    assert np.abs(np.linalg.det(Q) - 1.0).max() <= 1e-13
    assert np.abs(frames_of(case, XI[3:0:-1]) - Q[3:0:-1]).max() <= 1e-14


def test_rope_turns_from_the_first_axis_to_the_second(labelled: Labelled) -> None:
    """Catches the other sense of rotation, a frequency in turns, and the default: one whole turn for ξ from 0 to 1."""
    c, s = np.cos(2 * np.pi * 0.07), np.sin(2 * np.pi * 0.07)
    assert frames_of(labelled(2, {"kernel": "rope"}), XI)[1] == pytest.approx(np.array([[c, -s], [s, c]]), abs=1e-15)
    turned = frames_of(labelled(3, {"kernel": "rope", "planes": [[3, 1]], "frequencies": [0.5]}), XI)
    expected = Rotation.from_rotvec(0.5 * XI[:, None] * np.array([0.0, 1.0, 0.0])).as_matrix()
    assert np.abs(turned - expected).max() <= 1e-15


def test_rope_composes(labelled: Labelled) -> None:
    """Catches a group law that fails in one plane, and planes applied in the other order."""
    one = labelled(2, {"kernel": "rope", "frequencies": [3.7]})
    whole = frames_of(one, np.array([0.2, 0.5, 0.7]))
    assert np.abs(whole[0] @ whole[1] - whole[2]).max() <= 1e-15
    planes = {"planes": [[1, 2], [2, 3]], "frequencies": [3.0, 2.0]}
    both = frames_of(labelled(3, {"kernel": "rope", **planes}), XI)
    first = Rotation.from_rotvec(3.0 * XI[:, None] * np.array([0.0, 0.0, 1.0])).as_matrix()
    second = Rotation.from_rotvec(2.0 * XI[:, None] * np.array([1.0, 0.0, 0.0])).as_matrix()
    assert np.abs(both - second @ first).max() <= 1e-15
    assert np.abs(both - first @ second).max() >= 0.1


def test_rope_general_is_the_exponential(labelled: Labelled) -> None:
    """Catches functions, frequencies or amplitudes of another generator, or none: against expm of the sum."""
    table: dict[str, object] = {
        "kernel": "rope_general",
        "generators": [S, S2, S, S2],
        "functions": ["linear", "square", "sine", "cosine"],
        "frequencies": [1.3, 2.0, 7.0, -3.0],
        "amplitudes": [0.5, -1.5, 0.8, 0.25],
    }
    Q = frames_of(labelled(3, table), XI)
    A, B = np.array(S), np.array(S2)
    for xi, found in zip(XI, Q, strict=True):
        total = 0.5 * 1.3 * xi * A - 1.5 * (2.0 * xi) ** 2 * B + 0.8 * np.sin(7.0 * xi) * A
        total = total + 0.25 * np.cos(-3.0 * xi) * B
        assert np.abs(found - expm(total)).max() <= 1e-14


def test_rope_general_is_rope_for_a_generator_of_one_plane(labelled: Labelled) -> None:
    """Catches defaults that differ: linear, ω = 2π, amplitude 1."""
    turn = [[0.0, 0.0, -1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    rope = frames_of(labelled(3, {"kernel": "rope", "planes": [[1, 3]]}), XI)
    general = frames_of(labelled(3, {"kernel": "rope_general", "generators": [turn]}), XI)
    assert np.abs(rope - general).max() <= 1e-14


def test_exponents_beyond_round_off_are_refused(labelled: Labelled) -> None:
    """Catches frames that are not orthogonal, or not numbers: exp of a huge matrix."""
    changes: list[dict[str, object]] = [
        {"amplitudes": [1e8], "generators": [[[1e250 * entry for entry in row] for row in S]]},
        {"functions": ["square"], "frequencies": [1e9]},
    ]
    for change in changes:
        table: dict[str, object] = {"kernel": "rope_general", "generators": [S], **change}
        with pytest.raises(CaseError, match=r"^auxiliary\.generators: the exponents .* at most 1e\+09"):
            frames_of(labelled(3, table), XI)


@pytest.mark.parametrize("u", [None, [0.0, 3.0, -4.0]])
def test_prefix_turns_the_map_to_u(u: list[float] | None, labelled: Labelled) -> None:
    """Catches Qᵀ in place of Q, a u that is not normalised, and the default e₁: also for f(ξ) = −u."""
    table = {"kernel": "prefix", "map": "points", "points": [[1.0, 2.0, 3.0], [-1.0, 0.0, 0.0], [0.0, -3.0, 4.0]]}
    case = labelled(3, {**table, "u": u})
    labels = np.array([0.0, 0.4, 0.8])
    expected = [1.0, 0.0, 0.0] if u is None else [0.0, 0.6, -0.8]
    turned = np.einsum("nij,nj->ni", frames_of(case, labels), create_map(case)(labels))
    assert np.abs(turned - expected).max() <= 1e-15


def test_toeplitz(labelled: Labelled) -> None:
    """Catches a frequency in turns, and the content of the other form: ⟨x, y⟩ for linear, else the case's kernel."""
    table: dict[str, object] = {"kernel": "toeplitz", "form": "linear", "frequency": 3.0}
    case = labelled(3, table, {"attention.eigenvalues": [3.0, 2.0, 1.0]})
    b = bias_of(case)(XI, XI[:3])
    for i, xi in enumerate(XI):
        for j, zeta in enumerate(XI[:3]):
            assert b[i, j] == pytest.approx(np.cos(3.0 * (xi - zeta)), abs=1e-15)
    content = create_label_kernel(case).content
    assert isinstance(content, LinearKernel)
    assert np.array_equal(content.matrix, np.eye(3))
    assert create_label_kernel(labelled(3, {"kernel": "toeplitz"})).content is None
    whole = bias_of(labelled(3, {"kernel": "toeplitz"}))(np.array([0.1]), np.array([0.1, 0.35, 0.6, 1.1]))
    assert whole[0] == pytest.approx([1.0, 0.0, -1.0, 1.0], abs=1e-14)


DECAY: dict[str, tuple[Callable[[float], float], float]] = {  # b(r) and the r from which on it is zero
    "exponential": (lambda r: np.e**-r, np.inf),
    "gaussian": (lambda r: np.e ** (-r * r / 2), np.inf),
    "cauchy": (lambda r: 1 / (1 + r * r), np.inf),
    "triangle": (lambda r: 1 - r, 1.0),
    "window": (lambda r: 1.0, 1.0 + 1e-12),
    "cosine": (lambda r: (1 + np.cos(np.pi * r)) / 2, 1.0),
}


@pytest.mark.parametrize("decay", schema.DECAYS)
@pytest.mark.parametrize("periodic", [False, True])
def test_distance_bias(decay: str, periodic: bool, labelled: Labelled) -> None:
    """Catches a decay of another shape, a length that is ignored, and the long way round the circle of labels."""
    table: dict[str, object] = {"kernel": "distance_bias", "decay": decay, "length": 0.25, "periodic": periodic}
    bias = bias_of(labelled(2, table))
    labels = np.array([0.0, 0.01, 0.125, 0.25, 0.31, 0.5, 0.74, 0.875, 0.99, 2.3])
    b = bias(labels, labels)
    assert np.abs(np.diagonal(b) - 1.0).max() == 0.0
    assert np.array_equal(b, b.T)
    assert b.min() >= 0.0
    function, end = DECAY[decay]
    for i, xi in enumerate(labels):
        for j, zeta in enumerate(labels):
            ways = [abs(xi - zeta + k) for k in range(-3, 4)] if periodic else [abs(xi - zeta)]
            r = min(ways) / 0.25
            assert b[i, j] == pytest.approx(function(r) if r < end else 0.0, abs=1e-14)
    assert np.abs(bias(labels[:4] + 0.05, labels[2:3] + 0.05) - b[:4, 2:3]).max() <= 1e-14


def test_window_of_neighbours_on_a_grid(labelled: Labelled) -> None:
    """Catches round-off that decides which labels a whole length apart are connected: of ten, for every label five."""
    for length, neighbours in ((0.1, 3), (0.2, 5), (0.3, 7)):
        table = {"kernel": "distance_bias", "decay": "window", "length": length, "periodic": True}
        labels = np.arange(10) / 10
        assert bias_of(labelled(2, table))(labels, labels).sum(axis=1).tolist() == [neighbours] * 10


def test_distance_bias_defaults(labelled: Labelled) -> None:
    """Catches defaults other than the documented: e^{−|ξ − ζ|/0.2}, not periodic."""
    b = bias_of(labelled(2, {"kernel": "distance_bias"}))(np.array([0.0]), np.array([0.1, 0.9]))
    assert b[0] == pytest.approx([np.exp(-0.5), np.exp(-4.5)], rel=1e-14)


PARTS = """
import numpy as np


class Kernel:
    def __init__(self, frames=None, bias=None):
        if frames is not None:
            self.frames = frames
        if bias is not None:
            self.bias = bias


def turns(labels):
    c, s, zero = np.cos(labels), np.sin(labels), 0 * labels
    return np.moveaxis(np.array([[c, -s, zero], [s, c, zero], [zero, zero, 1 + zero]]), 2, 0)


def near(labels, others):
    return np.exp(-np.abs(labels[:, None] - others))


def both(case, scale=1.0):
    return Kernel(lambda labels: turns(scale * labels), near)


def framed(case):
    return Kernel(frames=turns)


def ranked_frames(case):
    return Kernel(frames=lambda labels: turns(labels / labels.max()))


def drawn_frames(case):
    return Kernel(frames=lambda labels: turns(np.random.default_rng().random(len(labels))))


def counted_bias(case):
    return Kernel(bias=lambda labels, others: near(labels, others) / (len(labels) + len(others)))


def biased(case):
    return Kernel(bias=near)


def in_place(case):
    def bias(labels, others):
        labels -= 1
        others -= 1
        return near(labels, others)

    return Kernel(bias=bias)


def nothing(case):
    return Kernel()


def number(case):
    return 3


def flat_frames(case):
    return Kernel(frames=lambda labels: turns(labels)[:, :2, :2])


def one_frame(case):
    return Kernel(frames=lambda labels: np.eye(3))


def stretching(case):
    return Kernel(frames=lambda labels: (1 + 1e-6) * turns(labels))


def undefined_frames(case):
    return Kernel(frames=lambda labels: np.nan * turns(labels))


def one_bias(case):
    return Kernel(bias=lambda labels, others: 1.0)


def paired(case):
    return Kernel(bias=lambda labels, others: np.ones(len(labels)))


def causal(case):
    return Kernel(bias=lambda labels, others: np.where(labels[:, None] >= others, 1.0, 0.0))


def infinite(case):
    return Kernel(bias=lambda labels, others: np.where(labels[:, None] == others, np.inf, 1.0))


def fails(case):
    return Kernel(bias=lambda labels, others: labels["xi"])
"""


def own_kernel(tmp_path: Path, name: str, parameters: dict[str, object] | None = None) -> Case:
    (tmp_path / "case.toml").write_text(GOOD)
    (tmp_path / "my_kernels.py").write_text(PARTS)
    table = {"auxiliary.kernel": f"my_kernels:{name}", "auxiliary.parameters": parameters}
    return load_case(tmp_path / "case.toml", table)


def test_kernel_of_the_user(tmp_path: Path) -> None:
    """Catches parameters that do not arrive, frames or a bias that are lost, and labels handed out to be changed."""
    kernel = create_label_kernel(own_kernel(tmp_path, "both", {"scale": 3.0}))
    assert kernel.frames is not None
    assert kernel.bias is not None
    assert kernel.content is None
    expected = Rotation.from_rotvec(3.0 * XI[:, None] * np.array([0.0, 0.0, 1.0])).as_matrix()
    assert np.abs(kernel.frames(XI) - expected).max() <= 1e-15
    assert np.abs(kernel.bias(XI, XI[1:3]) - np.exp(-np.abs(np.subtract.outer(XI, XI[1:3])))).max() <= 1e-15
    assert frames_of(own_kernel(tmp_path, "framed"), XI).shape == (5, 3, 3)
    assert bias_of(own_kernel(tmp_path, "biased"))(XI, XI[:2]).shape == (5, 2)
    labels = XI.copy()
    assert np.abs(bias_of(own_kernel(tmp_path, "in_place"))(labels, labels) - kernel.bias(XI, XI)).max() <= 1e-15
    assert np.array_equal(labels, XI)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", r"returned Kernel: an object with `frames\(labels\)`, `bias\(labels, others\)` or both is needed"),
        ("number", r"returned int: an object with `frames\(labels\)`, `bias\(labels, others\)` or both is needed"),
        ("flat_frames", r"frames of 5 labels have shape \(5, 2, 2\): \(5, 3, 3\) is needed"),
        ("one_frame", r"frames of 5 labels have shape \(3, 3\): \(5, 3, 3\) is needed"),
        ("stretching", "frames are not orthogonal: Q Qᵀ = 1 is needed"),
        ("undefined_frames", "frames are not orthogonal: Q Qᵀ = 1 is needed"),
        ("one_bias", r"bias of 5 and 2 labels has shape \(\): \(5, 2\) is needed"),
        ("paired", r"bias of 5 and 2 labels has shape \(5,\): \(5, 2\) is needed"),
        ("causal", r"bias is not symmetric: b\(ξ, ζ\) = b\(ζ, ξ\) is needed"),
        ("infinite", "bias is not finite"),
        ("ranked_frames", "the value at a label changes with the other labels or from call to call"),
        ("drawn_frames", "the value at a label changes with the other labels or from call to call"),
        ("counted_bias", "the value at a label changes with the other labels or from call to call"),
        ("fails", r"failed: IndexError: .* \(my_kernels\.py, line \d+\)"),
    ],
)
def test_bad_kernel_of_the_user(name: str, message: str, tmp_path: Path) -> None:
    """Catches a kernel that is no gradient flow or none of a label alone, and a traceback in the middle of a run."""

    def use() -> None:
        kernel = create_label_kernel(own_kernel(tmp_path, name))
        if kernel.frames is not None:
            kernel.frames(XI)
        if kernel.bias is not None:
            kernel.bias(XI, XI[:2])

    with pytest.raises(CaseError, match=rf"^auxiliary\.kernel: .*my_kernels\.py:{name}:? {message}"):
        use()
