"""Columns of text for people, as every command prints them."""

from collections.abc import Sequence


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line a row, its cells as wide as the widest of their column."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
