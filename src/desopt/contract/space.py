"""Bounds and scales: the box of a search, and the way between the user's x and the searched z.

===========  =================================  ==============================================
scale        bounds of the variable             z
===========  =================================  ==============================================
``linear``   two                                (x - lower) / unit, unit a quarter of the range
``linear``   one or none                        x
``log``      two, > 0                           (ln x - ln lower) / unit, a quarter of that range
``log``      one > 0, or none                   ln x
``own``      any                                x
===========  =================================  ==============================================

A step of size 1 is a quarter of the range, a factor e, or 1 in the variable's own units. Fixed
variables (lower = upper) are not searched: z has none of them. Everything here is computed by
+ - * / and the package's own exp and log, since it decides bits of x.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from desopt.contract.types import BoolArray, FloatArray, IndexArray
from desopt.kernels.portable import exp_of, log

SCALES = ("linear", "log", "own")

#: The least and the greatest x on a log scale: there exp neither loses digits nor overflows.
_SMALL, _LARGE = 4e-308, 8e307


@dataclass(frozen=True, eq=False)
class Box:
    """lower <= z <= upper, infinite where a variable is not bounded."""

    lower: FloatArray
    upper: FloatArray

    def project(self, z: FloatArray) -> None:
        """z to the nearest point of the box, in place.

        Comparisons, not np.clip: that leaves it to the CPU which of two zeros is the greater.
        """
        np.copyto(z, self.lower, where=z < self.lower)
        np.copyto(z, self.upper, where=z > self.upper)

    def project_at(self, z: FloatArray, index: IndexArray | None) -> None:
        """The same for these coordinates only (None: all)."""
        if index is None:
            self.project(z)
        else:
            at = z[index]
            Box(self.lower[index], self.upper[index]).project(at)
            z[index] = at

    def reflect(self, z: FloatArray) -> None:
        """z folded into the box, in place: mirrored at the bounds that it has crossed."""
        out = np.flatnonzero((z < self.lower) | (z > self.upper))
        if out.size == 0:
            return
        y, low, high = z[out], self.lower[out], self.upper[out]
        with np.errstate(all="ignore"):
            width = high - low
            once = np.where(y < low, low + (low - y), high - (y - high))  # the only bound
            t = (y - low) - 2.0 * width * np.floor((y - low) / (2.0 * width))
            folded = np.where(
                np.isfinite(width), low + np.where(t > width, 2.0 * width - t, t), once
            )
        z[out] = np.where(np.isfinite(folded), folded, y)  # where the width is 0, or z infinite
        self.project_at(z, out)

    def arrays(self) -> tuple[FloatArray, FloatArray]:
        """As compiled code takes it."""
        return self.lower, self.upper

    def settings(self) -> dict[str, Any]:
        """Plain JSON values; one number where it is the same for all variables."""
        return {
            "n": self.lower.size,
            "lower": _compact(self.lower.tolist()),
            "upper": _compact(self.upper.tolist()),
        }

    @classmethod
    def restore(cls, settings: Mapping[str, Any]) -> Box:
        """The box with these settings."""
        n = settings["n"]
        return cls(
            _spread(settings["lower"], n, -math.inf), _spread(settings["upper"], n, math.inf)
        )

    @property
    def bounded(self) -> bool:
        """Whether any variable has a bound."""
        return bool(np.isfinite(self.lower).any() or np.isfinite(self.upper).any())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and self.settings() == other.settings()

    def __hash__(self) -> int:
        return hash((self.lower.tobytes(), self.upper.tobytes()))


class Space:
    """n variables with bounds and scales, of which those that are not fixed are searched."""

    def __init__(self, lower: FloatArray, upper: FloatArray, scale: Sequence[str]) -> None:
        self.n, self.lower, self.upper, self.scale = lower.size, lower, upper, tuple(scale)
        self._free: IndexArray = np.flatnonzero(lower < upper)
        scales = np.array(self.scale)[self._free]
        self._log: BoolArray = scales == "log"
        self._any_log = bool(self._log.any())
        low, high = lower[self._free], upper[self._free]
        two_sided = np.isfinite(low) & np.isfinite(high)
        low = np.where(self._log, np.maximum(low, _SMALL), low)
        high = np.where(self._log, np.minimum(high, _LARGE), high)
        first, last = low.copy(), high.copy()
        first[self._log], last[self._log] = _logs(low[self._log]), _logs(high[self._log])
        ranged = two_sided & (scales != "own")
        unit = np.ones(self.size)  # by quarters: the range of two finite numbers may be infinite
        unit[ranged] = last[ranged] / 4.0 - first[ranged] / 4.0
        ranged &= unit > 1e-300
        # halves, which are exact: neither z * unit nor x - origin overflows
        self._half_unit = np.where(ranged, 0.5 * unit, 0.5)
        self._half_origin = np.where(ranged, 0.5 * first, 0.0)
        self._low, self._high = low, high
        self._all = Box(np.where(ranged, 0.0, first), np.where(ranged, 4.0, last))

    @classmethod
    def of(cls, bounds: Any, scale: Any, n: int, default: str = "linear") -> Space:
        """The space of n variables from the arguments ``bounds`` and ``scale``, checked."""
        lower, upper = as_bounds(bounds, n)
        scales = as_scale(scale, n, default)
        for i in np.flatnonzero((np.array(scales) == "log") & (lower < upper)).tolist():
            for side, bound in (("lower", lower[i]), ("upper", upper[i])):
                if -math.inf < bound <= 0.0:
                    raise ValueError(
                        f"variable {i} has scale 'log' and the {side} bound {bound:g}; give a "
                        "bound > 0, None, or another scale"
                    )
        if not (lower < upper).any():
            raise ValueError("bounds fix all variables (lower = upper): nothing is left to search")
        return cls(lower, upper, scales)

    @property
    def size(self) -> int:
        """The number of variables that are searched."""
        return int(self._free.size)

    @property
    def box(self) -> Box | None:
        """The bounds of z; None where there are none."""
        return self._all if self._all.bounded else None

    def decode(self, z: FloatArray) -> FloatArray:
        """x as a new array; inside its bounds, exactly on them where z is on those of the box."""
        y: FloatArray = z.copy()
        self._all.project(y)
        y *= self._half_unit
        y += self._half_origin
        y *= 2.0
        if self._any_log:
            y[self._log] = exp_of(y[self._log])
        np.copyto(y, self._low, where=(z <= self._all.lower) | (y < self._low))
        np.copyto(y, self._high, where=(z >= self._all.upper) | (y > self._high))
        if y.size == self.n:
            return y
        x = self.lower.copy()
        x[self._free] = y
        return x

    def encode(self, x: FloatArray) -> FloatArray:
        """z with decode(z) close to x, for x inside the bounds."""
        self.check(x)
        y = x[self._free]
        z: FloatArray = y.copy()
        z[self._log] = _logs(y[self._log])
        z = (0.5 * z - self._half_origin) / self._half_unit
        np.copyto(z, self._all.lower, where=y <= self._low)
        np.copyto(z, self._all.upper, where=y >= self._high)
        self._all.project(z)
        return z

    def check(self, x: FloatArray) -> None:
        """Refuse a starting point outside the bounds."""
        nearest = np.where(x < self.lower, self.lower, np.where(x > self.upper, self.upper, x))
        for i in np.flatnonzero(nearest != x).tolist():
            raise ValueError(
                f"x0[{i}] = {x[i]:.17g} is outside its bounds [{self.lower[i]:g}, "
                f"{self.upper[i]:g}]; the nearest allowed value is {nearest[i]:.17g}"
            )
        for i in np.flatnonzero(self._log_scale() & (x <= 0.0)).tolist():
            raise ValueError(f"x0[{i}] = {x[i]:g}, but its scale is 'log': it must be > 0")

    def settings(self) -> dict[str, Any]:
        """Plain JSON values; one value where it is the same for all variables."""
        return {**Box(self.lower, self.upper).settings(), "scale": _compact(self.scale)}

    @classmethod
    def restore(cls, settings: Mapping[str, Any]) -> Space:
        """The space with these settings."""
        box, scale = Box.restore(settings), settings["scale"]
        return cls(box.lower, box.upper, as_scale(scale, box.lower.size, "own"))

    def _log_scale(self) -> BoolArray:
        found: BoolArray = (np.array(self.scale) == "log") & (self.lower < self.upper)
        return found


def as_bounds(bounds: Any, n: int) -> tuple[FloatArray, FloatArray]:
    """The ``bounds`` argument for n variables, infinite where there is none.

    SciPy's ``Bounds``, n pairs, or one pair for all variables.
    """
    if bounds is None:
        return np.full(n, -math.inf), np.full(n, math.inf)
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        sides = [np.ravel(bounds.lb).tolist(), np.ravel(bounds.ub).tolist()]
        sides = [side * n if len(side) == 1 else side for side in sides]
    else:
        sides = _sides(bounds, n)
    for side in sides:
        if len(side) != n:
            raise ValueError(f"bounds are for {len(side)} variables, x0 has {n}")
    lower = np.array([_bound(v, i, -math.inf) for i, v in enumerate(sides[0])])
    upper = np.array([_bound(v, i, math.inf) for i, v in enumerate(sides[1])])
    for i in np.flatnonzero((lower > upper) | (lower == math.inf) | (upper == -math.inf)).tolist():
        raise ValueError(
            f"bounds of variable {i} are [{lower[i]:g}, {upper[i]:g}]: no number is between them"
        )
    return lower + 0.0, upper + 0.0  # no -0.0: a journal's settings do not tell it from 0.0


def _sides(bounds: Any, n: int) -> list[list[Any]]:
    """Lower and upper bounds from pairs."""
    try:
        pairs = list(bounds.tolist() if isinstance(bounds, np.ndarray) else bounds)
        if len(pairs) == 2 and all(v is None or isinstance(v, numbers.Real) for v in pairs):
            pairs = [pairs] * n  # one pair for all
        lower, upper = [], []
        for pair in pairs:
            low, high = pair
            lower.append(low)
            upper.append(high)
    except (TypeError, ValueError):
        raise TypeError(
            "bounds must be pairs (lower, upper), one for each variable or one for all, or "
            f"SciPy's Bounds; got {bounds!r:.80}"
        ) from None
    return [lower, upper]


def _bound(value: Any, variable: int, missing: float) -> float:
    if value is None:
        return missing
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or math.isnan(value):
        raise ValueError(f"a bound of variable {variable} is {value!r}; give a number or None")
    return float(value)


def as_scale(scale: Any, n: int, default: str) -> tuple[str, ...]:
    """The ``scale`` argument for n variables; None: ``default``, for one of them its own units."""
    if scale is None or isinstance(scale, str):
        given: list[Any] = [default if scale is None else scale] * n
    else:
        try:
            given = ["own" if one is None else one for one in scale]
        except TypeError:
            _refuse_scale(scale)
    if len(given) != n:
        raise ValueError(f"scale has {len(given)} entries, x0 has {n} numbers")
    for one in given:
        if not isinstance(one, str) or one not in SCALES:
            _refuse_scale(one)
    return tuple(given)


def _refuse_scale(scale: Any) -> NoReturn:
    raise ValueError(
        f"scale must be one of {', '.join(SCALES)}, or a list of them with one for each variable; "
        f"got {scale!r:.80}"
    )


def _logs(values: FloatArray) -> FloatArray:
    return np.array([log(value) for value in values.tolist()])


def _compact(values: Sequence[Any]) -> Any:
    """One value where all are equal, else a list; None for infinity, which JSON has not."""
    plain = [None if isinstance(v, float) and math.isinf(v) else v for v in values]
    return plain[0] if plain.count(plain[0]) == len(plain) else plain


def _spread(value: Any, n: int, missing: float) -> FloatArray:
    """n numbers from what ``_compact`` made of them."""
    values = value if isinstance(value, list) else [value] * n
    if len(values) != n:
        raise ValueError(f"{len(values)} bounds for {n} variables")
    return np.array([missing if v is None else float(v) for v in values])
