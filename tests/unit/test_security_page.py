"""The page on security names what tries each of its claims, and each of these exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "SECURITY.md"
LEAST_ROWS = 20
HEADS = ("| attack ", "| to another job ")
CELLS = (3, 5)
"""Cells of a row: attack, control and test, or what a job can do, on three platforms, and test."""


def read_rows(text):
    """Return the cells of each row of the tables of threats."""
    section = text.partition("\n## Threats\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith(HEADS)]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def find_mistakes(cells):
    """Say what is wrong with a row."""
    if len(cells) not in CELLS or not all(cells):
        return [f"each of {' or '.join(map(str, CELLS))} cells must have text"]
    names = re.findall(r"`([^`]+)`", cells[-1])
    if not names:
        return ["the last cell must name a test"]
    return [f"{name} does not exist" for name in names if not has_test(name)]


def has_test(name):
    """Return whether a test, or a file of tests, exists."""
    path, _, test = name.partition("::")
    file = ROOT / path
    return file.is_file() and f"\ndef {test}" in file.read_text() + "\ndef "


ROWS = read_rows(PAGE.read_text())


def test_the_page_has_its_rows():
    assert len(ROWS) >= LEAST_ROWS


@pytest.mark.parametrize("cells", ROWS, ids=lambda cells: cells[0])
def test_every_claim_is_tried(cells):
    assert find_mistakes(cells) == []


@pytest.mark.parametrize(
    "cells",
    [
        ["a", "b"],
        ["a", "", "`tests/unit/test_security_page.py`"],
        ["a", "b", "by hand"],
        ["a", "b", "`tests/unit/test_no_page.py`"],
        ["a", "b", "`tests/unit/test_security_page.py::test_nothing`"],
    ],
)
def test_a_planted_mistake_is_found(cells):
    assert find_mistakes(cells) != []
