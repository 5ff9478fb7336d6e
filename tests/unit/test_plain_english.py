"""Words of the programs and tests: docstrings, log messages and error texts, by the house's rules."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "app.py",
    "cli",
    "constructs",
    "contract",
    "docs",
    "examples",
    "lambda",
    "rehearsal",
    "stacks",
    "tests",
    "userdata",
    "view",
)
FIRST_WORDS = frozenset(
    {"What", "Whatever", "Who", "Whoever", "Whose", "Which", "Where", "Whether", "How", "When", "That", "Why"}
)
PHRASES = re.compile(
    r"\b(has not said|have not said|looks already|holds (no|nothing|something|what)|answers? (nothing|with nothing)"
    r"|tells?|is told|are told|nobody|somebody|whoever|goes? on|begun anew|tried again|tries again|of no use)\b"
)
"""Verbs and pronouns of people in messages of programs, in forms that have no other sense there."""
LOG_METHODS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
ERROR_CLASS = re.compile(r"(Error|Failure|Reason|Wait)$")


def list_modules():
    """Return the tracked modules of the folders; the listing fails outside of a checkout."""
    listing = subprocess.run(["git", "ls-files", "-z", *FOLDERS], cwd=ROOT, check=True, capture_output=True, text=True)
    return [ROOT / name for name in listing.stdout.split("\0") if name.endswith(".py")]


def list_docstrings(tree):
    """Yield line and text of every docstring, those of constants and attributes included."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def list_messages(tree):
    """Yield line and text of every literal in the arguments of log calls and of errors."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="LOG" | "logger"), attr=name)) if name in LOG_METHODS:
                yield from list_literals(node)
            case ast.Call(func=ast.Name(id=name)) if ERROR_CLASS.search(name):
                yield from list_literals(node)


def list_literals(call):
    for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
        for node in ast.walk(argument):
            match node:
                case ast.Constant(value=str(text)):
                    yield node.lineno, text


def find_odd_words(source):
    """Return line and text of every docstring that opens with a question word, and of every message of a person."""
    tree = ast.parse(source)
    opened = [(line, text) for line, text in list_docstrings(tree) if first_word(text) in FIRST_WORDS]
    odd = [(line, text) for line, text in list_messages(tree) if PHRASES.search(text)]
    return sorted({*opened, *odd})


def first_word(text):
    return "".join(re.findall(r"[A-Za-z']+", text)[:1])


def test_programs_and_tests_use_plain_english():
    modules = list_modules()
    assert len(modules) > 100
    odd = [
        f"{module.relative_to(ROOT)}:{line}: {' '.join(text.split())[:80]}"
        for module in modules
        for line, text in find_odd_words(module.read_text(encoding="utf-8"))
    ]
    assert odd == []


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('"""What all nodes start from."""\n', 1),
        ('class Node:\n    """\n    Whether it runs.\n    """\n', 2),
        ('SECONDS = 2\n"""How long it waits."""\n', 2),
        ('LOG.warning("the adjuster has not said what launched")\n', 1),
        ('LOG.log(level, "%s holds no file", name)\n', 1),
        ('raise StageFailure("it failed", f"{name} tells nobody")\n', 1),
        ('raise ContractError(\n    f"{url} answered: "\n    "it is tried again"\n)\n', 2),
    ],
)
def test_a_planted_fault_is_reported_with_its_line(source, line):
    assert [found for found, _ in find_odd_words(source)] == [line]


@pytest.mark.parametrize(
    "source",
    [
        '"""Machine image of every node."""\n',
        'LOG.warning("could not read the cluster state; retrying: %s", error)\n',
        'print("nobody")\n',
        'raise ValueError(f"name must contain letters, got {name}; rename it")\n',
    ],
)
def test_plain_words_pass(source):
    assert find_odd_words(source) == []
