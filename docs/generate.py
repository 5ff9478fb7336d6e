"""
Generator of documentation: parts of pages of docs, docs/faults.md, and api.md, commands.md and
rehearsed-resources.md of docs/reference.

    python -m docs.generate

All of it comes from the code, so that it stays correct; a test compares it.
"""

import argparse
import ast
import inspect
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from aws_cdk import App, CfnResource, Duration, RemovalPolicy, Size, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct, IConstruct

import cdk_rehearsal
import deeplearning_cdk
from cdk_rehearsal.main import _make_parser as make_rehearse_parser
from deeplearning_cdk import Candidate, EnvironmentCache, JobEnvironment, Lustre, NodeImage, Purchase, TrainingCluster
from deeplearning_cdk.props.check import find_choices
from deeplearning_cli.main import make_parser as make_cdk_parser
from deeplearning_command.main import make_parser as make_node_parser
from deeplearning_contract.launch_failures import LAUNCH_FAILURE_KINDS, UNKNOWN_FAILURE
from docs.change_table import changes_table
from docs.fault_table import (
    TABLE,
    find_mistakes,
    read_catalogue,
    render_table,
)
from docs.fault_trials import find_trials
from docs.rehearsed_resources import render_rehearsed_resources
from stacks.shorthands import SHORTHANDS

ROOT = Path(__file__).parents[1]
API = ROOT / "docs" / "reference" / "api.md"
COMMANDS = ROOT / "docs" / "reference" / "commands.md"
RESOURCES = ROOT / "docs" / "reference" / "rehearsed-resources.md"
CONSUMER_APP = ROOT / "examples" / "consumer_app" / "app.py"
ARCHITECTURE, IMPORT = ROOT / "docs" / "architecture.md", ROOT / "docs" / "guides" / "import.md"
PROPS, OPERATING = ROOT / "docs" / "props.md", ROOT / "docs" / "operating.md"
ERRORS = ROOT / "docs" / "reference" / "errors.md"
SOURCE_ROOTS = ("contract", "constructs", "userdata", "lambda", "view", "rehearsal", "cli")
_LABEL = re.compile(r"AWS::|::")


def main() -> None:
    """Rewrite the generated parts of the pages, and the table of faults."""
    IMPORT.write_text(fill(IMPORT.read_text(), "consumer app", f"```python\n{consumer_app()}\n```"))
    API.write_text(api_reference())
    COMMANDS.write_text(commands_reference())
    RESOURCES.write_text(render_rehearsed_resources())
    PROPS.write_text(fill(PROPS.read_text(), "props", props_reference()))
    OPERATING.write_text(fill(OPERATING.read_text(), "changes", changes_table()))
    ERRORS.write_text(fill(ERRORS.read_text(), "launch failures", launch_failures_table()))
    ARCHITECTURE.write_text(render(ARCHITECTURE.read_text()))
    rows, trials = read_catalogue(ROOT), find_trials(ROOT)
    (ROOT / TABLE).write_text(render_table(rows, trials))
    for mistake in find_mistakes(rows, trials):
        sys.stderr.write(f"{mistake}\n")


def render(text: str) -> str:
    """Return the text of the page about the architecture with its generated parts made anew."""
    parts = {"folders": folders_table(), "resources": resources_table()}
    for name, content in parts.items():
        text = fill(text, name, content)
    return text


def fill(text: str, name: str, content: str) -> str:
    """Return a page's text with one of its generated parts updated."""
    begin, end = f"<!-- generated: {name} -->", f"<!-- end of {name} -->"
    head, rest = text.split(begin)
    return f"{head}{begin}\n{content}\n{end}{rest.split(end)[1]}"


def folders_table() -> str:
    """Return a Markdown table of the folders of code, from the first sentence of each package."""
    modules = [path for root in SOURCE_ROOTS for path in sorted((ROOT / root).rglob("__init__.py"))]
    said = {path.parent.relative_to(ROOT): ast.get_docstring(ast.parse(path.read_text())) or "" for path in modules}
    rows = [f"| `{folder}` | {text.partition(chr(10) * 2)[0].strip()} |" for folder, text in said.items()]
    return "\n".join(["| folder | what it is for |", "|---|---|", *rows])


def consumer_app() -> str:
    """Return the example consumer app, without its docstring."""
    text = CONSUMER_APP.read_text()
    return text[text.index("import aws_cdk as cdk") :].strip()


def api_reference() -> str:
    """Return the page of the public classes and functions; at the lines with `:::` the site adds their docstrings."""
    public = {name: getattr(deeplearning_cdk, name) for name in sorted(deeplearning_cdk.__all__)}
    constructs = [name for name, kind in public.items() if issubclass(kind, Construct)]
    parts = [API_INTRO]
    for heading, package, names in (
        ("Constructs", deeplearning_cdk, constructs),
        ("Values", deeplearning_cdk, [name for name in public if name not in constructs]),
        ("Rehearsal of any CDK app", cdk_rehearsal, sorted(cdk_rehearsal.__all__)),
    ):
        rows = [f"| `{name}` | {_summarize(getattr(package, name))} |" for name in names]
        table = "\n".join(["| name | what it is |", "|---|---|", *rows])
        parts += [f"## {heading}", table, *(f"::: {package.__name__}.{name}" for name in names)]
    return "\n\n".join(parts) + "\n"


def _summarize(documented: Any) -> str:
    return _one_line((inspect.getdoc(documented) or "").partition("\n\n")[0])


API_INTRO = """\
# Python API

Everything that `deeplearning_cdk` and `cdk_rehearsal` export, with its arguments, attributes and methods. Props are
keyword-only arguments, and each value checks its fields when it is made. [Props and context keys](../props.md) has the
same props in the form of the app's context. Only the site has the descriptions, which it takes from the docstrings:
`make docs` builds it."""


def commands_reference() -> str:
    """Return the page about the commands, from their parsers."""
    parts = ["# Commands", "The commands with their arguments, as `--help` describes them."]
    for intro, parser in (
        ("On your machine. Each command has `--help`.", make_cdk_parser()),
        ("On every node, for the login user.", make_node_parser()),
        ("On your machine, for [any CDK app](../../rehearsal/cdk_rehearsal/README.md).", make_rehearse_parser()),
    ):
        parts += [f"## {parser.prog}", intro, *describe_parser(parser)]
        for name, command in find_commands(parser).items():
            parts += [f"### {parser.prog} {name}", *describe_parser(command)]
    return "\n\n".join(parts) + "\n"


def find_commands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Return the subcommands of a parser by their names."""
    found = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]  # noqa: SLF001
    return found[0].choices if found else {}


def describe_parser(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the description of a command, its arguments and the notes below its help."""
    rows = []
    for action in parser._actions:  # noqa: SLF001 - argparse shows them in no other way
        if action.dest == "help" or isinstance(action, argparse._SubParsersAction) or not action.help:  # noqa: SLF001
            continue
        value = action.metavar or (",".join(map(str, action.choices)) if action.choices else "")
        names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        meaning = action.help % {**vars(action), "prog": parser.prog}
        rows.append(f"| `{f'{names} {value}'.strip() if action.option_strings else names}` | {_one_line(meaning)} |")
    if parser.description:
        yield _one_line(parser.description)
    if rows:
        yield "\n".join(["| argument | meaning |", "|---|---|", *rows])
    for paragraph in parser.epilog.split("\n\n") if parser.epilog else ():
        # Lines that are indented form a table, which the help prints as it is.
        yield f"```text\n{paragraph}\n```" if "\n  " in paragraph else _one_line(paragraph)


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def props_reference() -> str:
    """Return a Markdown table of the props of `TrainingCluster`, and one of the fields of each value."""
    hints = get_type_hints(TrainingCluster.__init__, include_extras=True)
    parameters = inspect.signature(TrainingCluster.__init__).parameters.values()
    props = {each.name: hints[each.name] for each in parameters if each.kind is each.KEYWORD_ONLY}
    documented = read_section(TrainingCluster, "Args")
    values = {name: kind for name, hint in props.items() if (kind := find_value(hint)) is not None}
    tables = [fields_table("", props, documented)]
    for name, kind in (*values.items(), ("storage.lustre", Lustre)):
        fields = get_type_hints(kind, include_extras=True)
        table = fields_table(f"{name}.", fields, read_section(kind, "Attributes"))
        about = f"{_summarize(kind)} In Python: [`{kind.__name__}`](reference/api.md#deeplearning_cdk.{kind.__name__})."
        about = textwrap.fill(about, 120, break_long_words=False, break_on_hyphens=False)
        tables.append(f"## {name}: `{kind.__name__}`\n\n{about}\n\n{table}")
    return "\n\n".join(tables)


def find_value(hint: Any) -> Any:
    """Return the dataclass of a prop whose fields are keys of the context."""
    kinds = [kind for kind, _ in find_choices(hint)]
    return next((kind for kind in kinds if is_dataclass(kind) and kind not in SHORTHANDS), None)


def fields_table(prefix: str, hints: Mapping[str, Any], documented: Mapping[str, str]) -> str:
    """Return a Markdown table of props: description, default, and form in the context."""
    missing = [prefix + name for name in hints if "Default:" not in documented.get(name, "")]
    if missing:
        raise SystemExit(f"docstrings must give a `Default:` for: {', '.join(missing)}")
    rows = ["| prop and key | what | default | in the context |", "|---|---|---|---|"]
    for name, hint in hints.items():
        what, default = (part.strip().rstrip(".") for part in documented[name].split("Default:", 1))
        rows.append(f"| `{prefix}{name}` | {what} | {default} | {describe_context(hint)} |")
    return "\n".join(rows)


def describe_context(hint: Any) -> str:
    """Return the form in which the context contains a prop."""
    words: list[str] = []
    for kind, _ in find_choices(hint):
        if get_origin(kind) is Literal:
            words += [f"`{word}`" for word in get_args(kind)]
        elif get_origin(kind) in (Sequence, tuple):
            words.append(f"a list of {describe_context(get_args(kind)[0])}")
        elif kind in CONTEXT_WORDS:
            words.append(CONTEXT_WORDS[kind])
        elif is_dataclass(kind):
            words.append(f"an object of `{kind.__name__}`")  # type: ignore[union-attr]
    return " or ".join(dict.fromkeys(words)).replace("|", "\\|")


CONTEXT_WORDS: Mapping[Any, str] = {
    str: "text",
    int: "a number",
    float: "a number",
    bool: "`true` or `false`",
    Size: "`300GiB`",
    Duration: "`90m`, `48h`, `7d`",
    RemovalPolicy: "`retain-on-update-or-delete`, `retain` or `destroy`",
    NodeImage: "`ubuntu`, `deep-learning-ubuntu`, `deep-learning-amazon-linux`, or an object with `kind` and the "
    "arguments of the class method of `NodeImage` (`ssm-parameter` and `ami-id` need some)",
    Candidate: "zones or objects of `Candidate`",
    Purchase: "`on-demand`, `spot`, `reservation:<id or ARN of a resource group>`, `capacity-block:<id>`",
    JobEnvironment: "`horovod`, `none`, a requirements or conda file, `container:<image>`, or an object with `path`, "
    "`horovod`, `framework`",
    EnvironmentCache: "`bucket` or `bucket/folder`",
    ec2.IVpc: "an object of `ec2.Vpc.from_vpc_attributes`",
    ec2.ISubnet: "an id",
    ec2.ISecurityGroup: "ids",
    efs.IFileSystem: "an object with `file_system_id` and `security_group`",
    iam.IRole: "an ARN",
    iam.Role: "only in an app of your own",
    kms.IKey: "an ARN",
    sns.ITopic: "an ARN",
}
"""Form of each type in the context; other types need an app of your own."""


def launch_failures_table() -> str:
    """Return a Markdown table of the kinds of failed launches, with their remedies."""
    places = {"quota": "of the type's family", "key": "the volumes' KMS key"}
    rows = []
    for kind in (*LAUNCH_FAILURE_KINDS, UNKNOWN_FAILURE):
        remedy = kind.remedy.format(**places).replace("*", r"\*")
        rows.append(f"| `{kind.name}` | {remedy} |")
    return "\n".join(["| name | remedy |", "|---|---|", *rows])


def read_section(documented: Any, section: str) -> dict[str, str]:
    """Return the entries of a section of a docstring in Google's style."""
    text = inspect.getdoc(documented) or ""
    found = re.search(rf"^{section}:\n((?:[ ]+.*\n?|\n)+)", text, re.MULTILINE)
    entries = re.finditer(r"^    (\w+): (.*(?:\n {8,}.*)*)", found[1] if found else "", re.MULTILINE)
    return {entry[1]: " ".join(entry[2].split()).replace("|", "\\|") for entry in entries}


def resources_table() -> str:
    """Return a Markdown table of the default cluster: its parts, their resources, and the parts that they refer to."""
    app = App(builtin_cloud_formation_validation=False)
    stack = Stack(app, "Picture")
    cluster = TrainingCluster(stack, "Cluster")
    template = app.synth().get_stack_by_name("Picture").template["Resources"]
    part_of = dict(_parts(stack, cluster))
    held = {
        part: Counter(_LABEL.sub(" ", template[i]["Type"]).strip() for i in part_of if part_of[i] == part)
        for part in sorted(set(part_of.values()))
    }
    pairs = {(part_of[a], part_of[b]) for a in part_of for b in _references(template[a]) if b in part_of}
    rows = ["| part | resources | refers to |", "|---|---|---|"]
    for part, types in held.items():
        listing = ", ".join(f"{count} x {name}" if count > 1 else name for name, count in sorted(types.items()))
        others = ", ".join(sorted(other for one, other in pairs if one == part != other))
        rows.append(f"| {part} | {listing} | {others or 'none'} |")
    return "\n".join(rows)


def _parts(stack: Stack, cluster: IConstruct) -> Iterator[tuple[str, str]]:
    for part in cluster.node.children:
        for construct in part.node.find_all():
            if isinstance(construct, CfnResource):
                yield stack.resolve(construct.logical_id), part.node.id


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "Ref" and isinstance(inner, str):
                yield inner
            elif key == "Fn::GetAtt" and isinstance(inner, list):
                yield inner[0]
            elif key != "DependsOn":
                yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


if __name__ == "__main__":
    main()
