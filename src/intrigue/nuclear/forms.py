"""The words for what is computed from a matrix: the form of the value, and what its rows are measured from."""

from __future__ import annotations

from typing import Literal, get_args

# ratio ‖Z‖_*/‖Z‖_F · score ratio/√max(n, m) · norm ‖Z‖_* · floor (ratio − 1)/(√min(n, m) − 1)
Form = Literal["ratio", "score", "norm", "floor"]
# none: the rows themselves · mean: deviations from the mean row · first: offsets from the first row
Center = Literal["none", "mean", "first"]

FORMS: tuple[Form, ...] = get_args(Form)
CENTERS: tuple[Center, ...] = get_args(Center)
