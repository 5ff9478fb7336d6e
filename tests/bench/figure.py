"""Result of a measurement, and the table of all results."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """
    One figure that the project stands for.

    Attributes:
        name: What was measured.
        value: The figure; of several values their median.
        unit: Its unit. Empty for a ratio.
        at_most: The bound above. None: there is none.
        at_least: The bound below. None: there is none.
        values: What the median was taken of.
        percentile_95: The 95th percentile of the values. None: it is not asked for.
    """

    name: str
    value: float
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None
    values: tuple[float, ...] = ()
    percentile_95: float | None = None

    @property
    def holds(self) -> bool:
        """True if the figure is within its bounds."""
        is_low = self.at_least is not None and self.value < self.at_least
        is_high = self.at_most is not None and self.value > self.at_most
        return not is_low and not is_high

    @property
    def bound(self) -> str:
        """The bounds, in words; empty when there is none."""
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        return " and ".join(f"{words} {_spell(bound)}" for words, bound in bounds if bound is not None)


def take_median(
    name: str, values: Sequence[float], *, at_most: float | None = None, at_least: float | None = None
) -> Figure:
    """Return the figure of a ratio that was measured in pairs."""
    rounded = tuple(round(value, 3) for value in values)
    return Figure(name, round(statistics.median(values), 3), at_most=at_most, at_least=at_least, values=rounded)


def take_percentiles(name: str, values: Sequence[float]) -> Figure:
    """Return the figure of seconds that were measured several times: p50, and p95 between the two nearest values."""
    rounded = tuple(round(value, 2) for value in values)
    last = statistics.quantiles(values, n=20, method="inclusive")[-1]
    return Figure(name, round(statistics.median(values), 2), "s", values=rounded, percentile_95=round(last, 2))


def render_table(figures: Sequence[Figure]) -> str:
    """Return a Markdown table of figures."""
    rows = [
        (figure.name, f"{_spell(figure.value)} {figure.unit}".strip(), figure.bound, _show_spread(figure))
        for figure in figures
    ]
    head = [("figure", "measured", "bound", "spread"), ("---",) * 4]
    return "\n".join(f"| {' | '.join(row)} |" for row in (*head, *rows))


def _show_spread(figure: Figure) -> str:
    if not figure.values:
        return ""
    low, high = min(figure.values), max(figure.values)
    if figure.percentile_95 is not None:
        return f"p95 {_spell(figure.percentile_95)} s; {_spell(low)} to {_spell(high)} in {len(figure.values)} faults"
    return f"{_spell(low)} to {_spell(high)} in {len(figure.values)} pairs"


def _spell(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}" if value < 1 else f"{value:,.4g}"
