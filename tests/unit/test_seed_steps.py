"""The page for users of the predecessor: no cell is empty, its commands exist, and so does what tries them."""

import contextlib
import io
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from deeplearning_cli.main import make_parser as make_user_parser
from deeplearning_command.main import make_parser as make_node_parser
from stacks.cluster_context import CLUSTER_KEYS, PLACE_KEYS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "from-deeplearning-cfn.md"
CASES = ROOT / "rehearsal" / "deeplearning_rehearsal" / "cases"
LEAST_STEPS = {"Mask R-CNN with TensorPack and Horovod": 20, "MXNet and TensorFlow": 17}
STACK_KEYS = {"regions", "stack_name", "tags", "availability_zones"}


def read_steps(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the guide and the cells of each row."""
    for section in text.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        for line in body.splitlines():
            if line.startswith("| ") and not line.startswith("| step of the guide"):
                yield title, [cell.strip() for cell in line.strip("|").split(" | ")]


STEPS = list(read_steps(PAGE.read_text()))


def find_mistakes(cells: list[str]) -> list[str]:
    """Say what is wrong with a row."""
    if len(cells) != 3 or not all(cell.strip("`. ") for cell in cells):
        return ["each of three cells must say something"]
    _, here, trial = cells
    mistakes = [f"{text}: {why}" for text in re.findall(r"`([^`]+)`", here) if (why := refuse_command(text))]
    found = re.findall(r"`([^`]+)`", trial)
    if not found:
        mistakes.append("the last cell must name a test or a case")
    for name in found:
        path, _, test = name.partition("::")
        file = CASES / f"{name}.toml" if trial.startswith("case") else ROOT / path
        if not file.is_file() or f"\ndef {test}(" not in file.read_text() + "\ndef (":
            mistakes.append(f"{name} does not exist")
    return mistakes


def refuse_command(text: str) -> str:
    """Say why a text that is one of our commands would not be accepted; empty when it would, or is none."""
    words = shlex.split(text.replace("...", "x"))
    if words[:1] == ["deeplearning"]:
        return refuse_arguments(make_node_parser(), words[1:])
    if words[:1] == ["deeplearning-cdk"]:
        return refuse_arguments(make_user_parser(), words[1:])
    if words[:2] == ["npx", "cdk"]:
        keys = {word.partition("=")[0] for before, word in itertools.pairwise(words) if before == "-c"}
        return ", ".join(sorted(keys - set(CLUSTER_KEYS) - set(PLACE_KEYS) - STACK_KEYS))
    if words[:1] == ["make"]:
        return "" if re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE) else "no such target"
    return refuse_paths(words)


def refuse_paths(words: list[str]) -> str:
    """Say which named example is not there."""
    named = [word.partition("deeplearning-cdk/")[2] or word for word in words if "examples/" in word]
    return ", ".join(name for name in named if not (ROOT / name).exists())


def refuse_arguments(parser, arguments: list[str]) -> str:
    """Say why a parser refuses arguments."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            parser.parse_args(arguments)
        except SystemExit as end:
            return said.getvalue().strip() if end.code else ""
    return ""


@pytest.mark.defect("D77")
@pytest.mark.parametrize("cells", [cells for _, cells in STEPS], ids=[cells[0][:40] for _, cells in STEPS])
def test_a_step_has_a_command_that_exists_and_a_test(cells):
    assert find_mistakes(cells) == []


def test_both_guides_are_there_from_their_first_step_to_their_last():
    counts = {title: sum(found == title for found, _ in STEPS) for title in LEAST_STEPS}
    assert all(counts[title] >= least for title, least in LEAST_STEPS.items()), counts
    numbers = [number for _, cells in STEPS for number in re.findall(r"^(\d)\. ", cells[0])]
    assert set(numbers) == set("123456789")


@pytest.mark.parametrize(
    ("cells", "mistake"),
    [
        (["a step", "", "case `quota`"], "each of three cells"),
        (["a step", "`deeplearning run`", "nothing"], "must name a test"),
        (["a step", "words", "`tests/unit/test_nothing.py`"], "does not exist"),
        (["a step", "words", "`tests/unit/test_seed_steps.py::test_nothing`"], "does not exist"),
        (["a step", "words", "case `nothing`"], "does not exist"),
        (["a step", "`deeplearning fly`", "case `quota`"], "invalid choice: 'fly'"),
        (["a step", "`deeplearning-cdk rehearse --fly`", "case `quota`"], "unrecognized arguments"),
        (["a step", "`npx cdk deploy -c wings=2`", "case `quota`"], "wings"),
        (["a step", "`make fly`", "case `quota`"], "no such target"),
        (["a step", "`python3 E/deeplearning-cdk/examples/fly.py`", "case `quota`"], "examples/fly.py"),
    ],
)
def test_a_planted_mistake_is_found(cells, mistake):
    assert any(mistake in found for found in find_mistakes(cells))
