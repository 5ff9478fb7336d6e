"""The pages of the documentation: their links, their commands, their context keys, and the README's length."""

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deeplearning_cdk.emr.training import EmrTraining
from deeplearning_cli.main import make_parser as make_cdk_parser
from deeplearning_cli.main import split_command
from deeplearning_command.main import make_parser as make_node_parser
from stacks.reader import list_hints, list_keys

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    path
    for path in (
        *ROOT.glob("*.md"),
        *DOCS.rglob("*.md"),
        ROOT / "examples/README.md",
        *ROOT.glob("rehearsal/*/README.md"),
    )
)
MOST_WORDS = 700
_LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")
_OTHER_KEYS = {"platform", "regions", "vpc_id", "reservation", "zone"}
"""Of the stacks in `stacks`, and of the apps in examples."""


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    for path, anchor in _LINK.findall(_without_code(page.read_text())):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{path} does not exist"
        if anchor and target.suffix == ".md":
            assert anchor in set(_list_anchors(target)), f"{path} has no heading #{anchor}"


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    listed = set(re.findall(r": ([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    elsewhere = {"reference/changelog.md", "contributing.md", "security.md", "guides/examples.md"}
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert listed == pages | elsewhere | {"guides/rehearse-another-app.md"}


def test_the_navigation_of_the_site_has_the_groups_of_the_readme() -> None:
    groups = re.findall(r"^\| (\w+) \| \[", (ROOT / "README.md").read_text(), re.MULTILINE)
    listed = re.findall(r"^  - (\w+):", (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2], re.MULTILINE)
    assert listed == ["Home", *groups, "Reference"]
    assert "Train" in groups


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= MOST_WORDS


def test_the_readmes_snippet_runs_as_it_stands(tmp_path: Path) -> None:
    (snippet,) = re.findall(r"<!-- run by a test -->\n```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    subprocess.run([sys.executable, "-"], input=snippet, text=True, cwd=tmp_path, check=True)
    assert (tmp_path / "cdk.out" / "training.template.json").is_file()


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_commands_on_pages_exist_with_their_options(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in _list_commands(page):
        words = shlex.split(line, comments=True)
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= targets, line
        elif words[0].removeprefix(".venv/bin/") == "deeplearning-cdk":
            make_cdk_parser().parse_args(split_command(words[1:])[0])
        elif words[0] == "deeplearning":
            make_node_parser().parse_args(words[1:])


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=_name)
def test_context_keys_on_pages_exist(page: Path) -> None:
    keys = set(re.findall(r"-c ['\"]?([\w.]+)=", page.read_text()))
    assert keys <= {name for name, _ in list_hints()} | set(list_keys(EmrTraining)) | _OTHER_KEYS


def test_every_message_on_the_page_of_errors_is_in_the_source() -> None:
    written = "\n".join(_list_texts())
    page = (DOCS / "reference/errors.md").read_text()
    tables = re.findall(r"^\| (?:message|reason) \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    messages = [row.split("`")[1] for table in tables for row in table.splitlines()]
    assert len(messages) > 50
    assert [message for message in messages if message.removesuffix(" …").rstrip("…") not in written] == []


def _without_code(text: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def _list_commands(page: Path) -> Iterator[str]:
    for block in re.findall(r"^```(?:bash)?\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            if re.match(r"(make|deeplearning|(\.venv/bin/)?deeplearning-cdk) [a-z-]", line) and "…" not in line:
                yield line


def _list_texts() -> Iterator[str]:
    """Yield every text of the programs, with an ellipsis in place of each value of an f-string."""
    folders = ("app.py", "cli", "constructs", "lambda", "rehearsal", "stacks", "userdata", "view")
    listing = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in listing.stdout.split("\0"):
        for node in ast.walk(ast.parse((ROOT / name).read_text())) if name.endswith(".py") else ():
            match node:
                case ast.JoinedStr(values=parts):
                    yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)
                case ast.Constant(value=str(text)):
                    yield text


def _list_anchors(page: Path) -> Iterator[str]:
    """Yield the anchors of headings as MkDocs and GitHub make them, and the names in the reference of the API."""
    yield from re.findall(r"^::: (.*)$", page.read_text(), re.MULTILINE)
    for heading in re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        yield re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", text).strip())
