"""
The blocks of code on the pages, as a reader pastes them.

The Python of a page runs as one program, so that its first block shows what the others take for granted. Tests of a
page run with the page's own commands beside the README's app. Commands, job files and JSON are read by their readers.
A block of `text` is the output of a program. What cannot run stands below `<!-- not run: reason -->`.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from itertools import groupby, pairwise, takewhile
from pathlib import Path

import aws_cdk as cdk
import pytest
import yaml

from cdk_rehearsal.main import _make_parser as make_rehearse_parser
from deeplearning_cdk.catalog.instance_catalog import describe_instance_type
from deeplearning_cdk.eks.nodes import LABEL_KEY, LABEL_VALUE
from deeplearning_cdk.eks.plan import DEFAULT_INSTANCE_TYPE, DEFAULT_NAMESPACE
from deeplearning_cli.jobs.definition import read_job
from deeplearning_cli.main import make_parser as make_cdk_parser
from deeplearning_cli.main import split_command
from deeplearning_command.main import make_parser as make_node_parser
from deeplearning_contract.jobs.kubernetes_cluster import EFA, GPU
from deeplearning_rehearsal.platforms.registry import find_platform
from stacks.cluster_stack import make_stack
from stacks.context import read_choices, read_context

ROOT = Path(__file__).parents[2]
LISTING = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
BLOCK = re.compile(
    r"(?:^ *<!-- not run: (?P<reason>[^\n]+) -->\n)?^ *```(?P<language>\w*)\n(?P<text>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
NOT_RUN = ("mermaid", "text")
FOREIGN = frozenset(
    {
        *("apt-get", "aws", "lsblk", "mpirun", "npm", "nvidia-smi", "pipx", "pytest", "python3", "sudo", "uv", "xargs"),
        *("cd", "do", "done", "echo", "sha256sum", "source", "tar", "test", "while"),
    }
)
"""First words of commands that are not ours."""
OWN_ADDRESS = "$(curl -s https://checkip.amazonaws.com)"
"""Command that prints a reader's own address."""


@dataclass(frozen=True)
class Block:
    """Block of code of a page; `reason` is why it cannot run."""

    page: str
    language: str
    text: str
    reason: str | None

    def __str__(self):
        return f"{self.page}-{self.text.splitlines()[0]}"


def find_blocks(page, text):
    for found in BLOCK.finditer(text):
        yield Block(page, found["language"], found["text"], found["reason"])


BLOCKS = [block for page in LISTING.split() for block in find_blocks(page, (ROOT / page).read_text())]
RUN = [block for block in BLOCKS if block.reason is None and block.language not in NOT_RUN]
PROGRAMS = {
    page: "".join(block.text for block in blocks)
    for page, blocks in groupby((block for block in RUN if block.language == "python"), key=lambda block: block.page)
}
APPS = {page: text for page, text in PROGRAMS.items() if "def test_" not in text}


def test_blocks_that_cannot_run_are_few_and_say_why():
    assert [(block.page, block.language) for block in BLOCKS if block.reason is not None] == [
        ("docs/tutorials/first-hour-on-aws.md", "python"),
        ("docs/tutorials/rehearse-your-app.md", "python"),
        ("docs/tutorials/rehearse.md", "python"),
        ("rehearsal/cdk_rehearsal/README.md", "python"),
        ("rehearsal/cdk_rehearsal/README.md", "python"),
    ]
    assert {block.language for block in BLOCKS} == {"", "json", "python", "toml", "yaml", *NOT_RUN}
    assert len(APPS) > 5


@pytest.fixture(scope="module")
def run_page(run_as_cli, tmp_path_factory):
    """Return a function that runs the Python of a page as `app.py` and returns its assembly; each page runs once."""
    known = {}

    def run(page):
        if page not in known:
            folder = tmp_path_factory.mktemp("page")
            (folder / "app.py").write_text(PROGRAMS[page])
            known[page] = folder / "cdk.out"
            run_as_cli(folder / "app.py", known[page], {})
        return known[page]

    return run


@pytest.mark.parametrize("page", APPS)
def test_the_python_of_a_page_writes_an_assembly_with_a_template(run_page, page):
    assert list(run_page(page).glob("*.template.json"))


def test_the_readmes_app_passes_the_rules_of_cdk_preflight(run_as_cli, tmp_path):
    program = PROGRAMS["README.md"].replace(
        "app.synth()", "from cdk_preflight import Preflight\n\nPreflight.apply(app)\napp.synth()"
    )
    assert "Preflight.apply" in program
    (tmp_path / "app.py").write_text(program)
    run_as_cli(tmp_path / "app.py", tmp_path / "cdk.out", {})
    assert list((tmp_path / "cdk.out").glob("*.template.json"))


@pytest.mark.parametrize("page", [page for page in PROGRAMS if page not in APPS])
def test_the_tests_of_a_page_pass_beside_the_readmes_app(page, tmp_path):
    (tmp_path / "app.py").write_text(PROGRAMS["README.md"])
    (tmp_path / "test_app.py").write_text(PROGRAMS[page])
    quick = "import functools, aws_cdk\n"
    quick += "aws_cdk.App = functools.partial(aws_cdk.App, builtin_cloud_formation_validation=False)\n"
    (tmp_path / "conftest.py").write_text(quick)
    commands = [words for words in map(shlex.split, _list_lines(page)) if words[0] == "pytest"]
    assert [words[1:] for words in commands] == [["--snapshot-update"], []]
    for words in commands:
        subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, env=_clean_environment(), check=True)


@pytest.mark.parametrize("block", [block for block in RUN if not block.language], ids=str)
def test_the_commands_of_a_block_are_read_by_their_parsers(block):
    read_commands(block)


@pytest.mark.parametrize("block", [block for block in RUN if block.language == "toml"], ids=str)
def test_a_job_file_of_a_page_defines_a_job(block, tmp_path):
    (tmp_path / "job.toml").write_text(block.text)
    arguments = make_cdk_parser().parse_args(["plan", str(tmp_path / "job.toml")])
    assert read_job(tmp_path / "job.toml", arguments).job.program


@pytest.mark.parametrize("block", [block for block in RUN if block.language == "json"], ids=str)
def test_the_json_of_a_page_is_read(block):
    assert json.loads(block.text)


def test_the_queue_of_a_page_has_what_the_jobs_of_the_default_cluster_ask_for():
    (block,) = (block for block in RUN if (block.page, block.language) == ("docs/guides/eks.md", "yaml"))
    flavor, cluster_queue, queue = yaml.safe_load_all(block.text)
    facts = describe_instance_type("instance_type", DEFAULT_INSTANCE_TYPE)
    members = 2
    assert facts.memory_mib
    assert facts.local_gigabytes
    devices = {GPU: members * facts.gpu_count, EFA: members * len(facts.efa_cards)}
    room = {"memory": members * (facts.memory_mib >> 10), "ephemeral-storage": members * facts.local_gigabytes}
    (group,) = cluster_queue["spec"]["resourceGroups"]
    assert group["coveredResources"] == [*devices, *room]
    quotas = {each["name"]: each["nominalQuota"] for each in group["flavors"][0]["resources"]}
    assert {name: quotas.pop(name) for name in devices} == devices
    for name, gibibytes in room.items():
        assert 0.8 * gibibytes < int(quotas[name].removesuffix("Gi")) < gibibytes, "as pods ask for less than the node"
    assert flavor["spec"]["nodeLabels"] == {LABEL_KEY: LABEL_VALUE}
    assert queue["metadata"]["namespace"] == DEFAULT_NAMESPACE
    assert queue["spec"]["clusterQueue"] == cluster_queue["metadata"]["name"]
    assert group["flavors"][0]["name"] == flavor["metadata"]["name"]


def test_the_jobs_of_the_page_about_ci_have_the_same_commands_that_are_read():
    github, gitlab = (
        yaml.safe_load(block.text) for block in RUN if (block.page, block.language) == ("docs/guides/ci.md", "yaml")
    )
    steps = [step["run"] for step in github["jobs"]["rehearse"]["steps"] if "run" in step]
    script = gitlab["rehearse"]["script"]
    read_commands(Block("docs/guides/ci.md", "", "\n".join([*steps, *script]), None))
    as_root = [line.replace('sudo "$(which cdk-rehearse)"', "cdk-rehearse").replace("sudo ", "") for line in steps]
    assert script[-len(steps) :] == as_root


def test_rehearsals_on_pages_have_enough_nodes_for_the_readmes_app(run_page):
    template = json.loads((run_page("README.md") / "training.template.json").read_text())
    text = "".join((ROOT / page).read_text() for page in LISTING.split() if page != "CHANGELOG.md")
    counts = set(map(int, re.findall(r"deeplearning-cdk rehearse cdk\.out[^\n`]* --nodes (\d+)", text)))
    assert counts
    for nodes in counts:
        find_platform(template).require_nodes(template, nodes)


@pytest.mark.parametrize(
    "line",
    [
        "make rehears",
        "make rehearse CASSE=quota",
        "make setup && deeplearning-cdk stattus",
        "deeplearning-cdk rehearse cdk.out --nods 2 --expect formed",
        'sudo "$(which cdk-rehearse)" cdk.out --ordres 20',
        "deeplearning run --launcher mpirun -- python3 train.py",
        "npx cdk deploi",
        "npx cdk deploy -c workers.instance_typ=g5.12xlarge",
        "npx cdk deploy -c workers.min_capacity=two",
        "pip install 'deeplearning-cdk[operate]'",
        "deeplearning-cdkk status",
    ],
)
def test_a_mistake_in_a_command_is_found(line):
    with pytest.raises((SystemExit, ValueError, AssertionError)):
        read_commands(Block("page", "", f"{line}  # … is a comment\n", None))


def test_blocks_are_found_after_others_and_in_lists():
    text = "```python\nx\n```\n\n1. a\n\n   ```\n   make y\n   ```\n<!-- not run: needs z -->\n```toml\nz\n```\n"
    found = [(block.language, block.text.strip(), block.reason) for block in find_blocks("page", text)]
    assert found == [("python", "x", None), ("", "make y", None), ("toml", "z", "needs z")]


# --- Commands -----------------------------------------------------------------------------------------


def read_commands(block):
    """Read each command of a block with the parser of its program, without comments and redirections."""
    for line in block.text.replace("\\\n", " ").replace(OWN_ADDRESS, "54.240.193.130").splitlines():
        words = shlex.split(line, comments=True)
        for is_end, command in groupby(words, key=lambda word: word in {"&&", "|", ";"}):
            if not is_end:
                _read_command(list(takewhile(lambda word: word != ">", command)))


def _read_command(words):
    program, arguments = words[0].removeprefix(".venv/bin/"), words[1:]
    match program:
        case "sudo" if found := re.fullmatch(r"\$\(which (.+)\)", arguments[0]):
            _read_command([found[1], *arguments[1:]])
        case "make":
            _read_make(arguments)
        case "deeplearning-cdk":
            make_cdk_parser().parse_args(split_command(arguments)[0])
        case "deeplearning":
            make_node_parser().parse_args(arguments)
        case "cdk-rehearse":
            make_rehearse_parser().parse_args(arguments)
        case "npx" | "cdk":
            words = [word for word in arguments if word != "--yes"]
            _read_cdk(words[1:] if program == "npx" else words)
        case "pip":
            assert all("/" in word or word[0] in ".$" for word in arguments if "deeplearning" in word)
        case "python":
            assert arguments == ["app.py"]
        case _:
            assert program in FOREIGN


def _read_make(arguments):
    makefile = (ROOT / "Makefile").read_text()
    for word in arguments:
        name, is_variable, value = word.partition("=")
        assert re.search(rf"^{name} \?=" if is_variable else rf"^{name}:", makefile, re.MULTILINE), word
        if name == "CONTEXT":
            _read_context(shlex.split(value))


def _read_cdk(arguments):
    assert arguments[0] in {"bootstrap", "deploy", "destroy", "init", "synth"}
    if "--app" not in arguments:
        _read_context(arguments[1:])


def _read_context(arguments):
    """Create the stacks of the repository's app with the context of a command."""
    _create_stacks(tuple(word for flag, value in pairwise(arguments) if flag == "-c" for word in (flag, value)))


@cache
def _create_stacks(given):
    app = cdk.App()
    for choice in read_choices(read_context(given, {}, ROOT)):
        make_stack(app, choice)


def _list_lines(page):
    return [line for block in RUN if (block.page, block.language) == (page, "") for line in block.text.splitlines()]


def _clean_environment():
    """Return the environment of a reader, in which the CDK CLI runs the app."""
    ours = ("AWS_", "CDK_", "PYTEST_", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)} | {"CDK_OUTDIR": "cdk.out"}
