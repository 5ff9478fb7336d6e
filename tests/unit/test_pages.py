"""The pages of the documentation: their links, their context keys, their messages, and the README's length."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from deeplearning_cdk.eks.training import EksTraining
from deeplearning_cdk.emr.training import EmrTraining
from deeplearning_cdk.sagemaker.training import SageMakerTraining
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
MOST_WORDS = 749
_LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")
_OTHER_KEYS = {"platform", "regions", "vpc_id", "reservation", "zone"}
"""Of the stacks in `stacks`, and of the apps in examples."""


def _name(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_to_files_and_headings_that_exist(page):
    for path, anchor in _LINK.findall(_without_code(page.read_text())):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{path} does not exist"
        if anchor and target.suffix == ".md":
            assert anchor in set(_list_anchors(target)), f"{path} has no heading #{anchor}"


def test_every_page_is_in_the_navigation_of_the_site():
    listed = set(re.findall(r": ([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    elsewhere = {"reference/changelog.md", "contributing.md", "security.md", "guides/examples.md"}
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert listed == pages | elsewhere | {"guides/rehearse-another-app.md"}


def test_the_navigation_of_the_site_has_the_groups_of_the_readme():
    groups = re.findall(r"^\| (\w+) \| \[", (ROOT / "README.md").read_text(), re.MULTILINE)
    listed = re.findall(r"^  - (\w+):", (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2], re.MULTILINE)
    assert listed == ["Home", *groups, "Reference"]
    assert "Train" in groups


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= MOST_WORDS


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=_name)
def test_context_keys_on_pages_exist(page):
    keys = set(re.findall(r"-c ['\"]?([\w.]+)=", page.read_text()))
    assert (
        keys
        <= {name for name, _ in list_hints()}
        | set(list_keys(EmrTraining))
        | set(list_keys(SageMakerTraining))
        | set(list_keys(EksTraining))
        | _OTHER_KEYS
    )


def test_nothing_names_our_own_package_on_an_index():
    """As long as nobody published the name, who claims it decides what such a command installs."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = (ROOT / name for name in listing.split("\0") if name and not name.startswith(("tests/", "CHANGELOG")))
    texts = {path: path.read_bytes().decode(errors="replace") for path in paths if path.is_file()}
    assert [path.name for path, text in texts.items() if find_index_installs(text)] == []
    assert find_index_installs("run: pip install 'deeplearning-cdk[operate]'`") == ["deeplearning-cdk[operate]"]
    assert find_index_installs("uv add deeplearning_cdk==0.1.0") == ["deeplearning_cdk==0.1.0"]
    assert find_index_installs('pip install boto3 "../deeplearning-cdk[operate]" dist/deeplearning_cdk-0.1.0.whl') == []


def find_index_installs(text):
    """Return the words by which installers would look this project up on an index."""
    commands = re.findall(r"\b(?:(?:pip|pipx|uv) (?:\w+ )*?(?:install|run|add)|uvx)\b([^\n;`]*)", text)
    words = (word.strip("\"',") for command in commands for word in command.split())
    return [word for word in words if re.match(r"deeplearning[-_.]cdk(?![\w.-]*/)", word, re.IGNORECASE)]


def test_every_message_on_the_page_of_errors_is_in_the_source():
    written = "\n".join(_list_texts())
    page = (DOCS / "reference/errors.md").read_text()
    tables = re.findall(r"^\| (?:message|reason) \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    messages = [row.split("`")[1] for table in tables for row in table.splitlines()]
    assert len(messages) > 50
    assert [message for message in messages if not _is_written(message, written)] == []
    assert not _is_written("encryption_key must be a key for encryption, got …", written)


def _without_code(text):
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def _is_written(message, written):
    """Return whether the programs have a message, or the rule of a prop from which they compose it."""
    rule = re.search(r" must (.+?)(?:, got)? …?$", message)
    return message.removesuffix(" …").rstrip("…") in written or (rule is not None and rule[1] in written)


def _list_texts():
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


def _list_anchors(page):
    """Yield the anchors of headings as MkDocs and GitHub make them, and the names in the reference of the API."""
    yield from re.findall(r"^::: (.*)$", page.read_text(), re.MULTILINE)
    for heading in re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        yield re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", text).strip())
