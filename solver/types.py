"""Array types shared by the whole program."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FloatArray", "IntArray", "Json"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Json = dict[str, Any]
