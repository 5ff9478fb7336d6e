"""
Write what is generated of the documentation: parts of README.md and docs/architecture.md, and docs/faults.md.

    python -m docs.generate

All of it comes from the code, so that it stays true; a test compares it.
"""

import ast
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aws_cdk import App, CfnResource, Stack
from constructs import IConstruct

from deeplearning_cdk import TrainingCluster
from docs.fault_table import TABLE, find_mistakes, read_catalogue, read_outcomes, render_table
from docs.fault_trials import find_trials

ROOT = Path(__file__).parents[1]
CONSUMER_APP = ROOT / "examples" / "consumer_app" / "app.py"
README, ARCHITECTURE = ROOT / "README.md", ROOT / "docs" / "architecture.md"
SOURCE_ROOTS = ("contract", "constructs", "userdata", "lambda", "view", "rehearsal", "cli")
_LABEL = re.compile(r"AWS::|::")


def main() -> None:
    """Rewrite the generated parts of the pages, and the table of faults."""
    README.write_text(render(README.read_text()))
    ARCHITECTURE.write_text(fill(ARCHITECTURE.read_text(), "folders", folders_table()))
    rows, trials = read_catalogue(ROOT), find_trials(ROOT)
    (ROOT / TABLE).write_text(render_table(rows, trials, read_outcomes(ROOT)))
    for mistake in find_mistakes(rows, trials):
        sys.stderr.write(f"{mistake}\n")


def render(text: str) -> str:
    """Return the README's text with its generated parts made anew."""
    parts = {
        "props": props_table(),
        "architecture": f"```mermaid\n{architecture()}\n```",
        "consumer app": f"```python\n{consumer_app()}\n```",
    }
    for name, content in parts.items():
        text = fill(text, name, content)
    return text


def fill(text: str, name: str, content: str) -> str:
    """Return a page's text with one of its generated parts made anew."""
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
    """Return the stack of the example consumer app, without what every CDK app begins and ends with."""
    text = CONSUMER_APP.read_text()
    return text[text.index("from deeplearning_cdk import") : text.index("\n\napp = cdk.App()")].strip()


def props_table() -> str:
    """Return a Markdown table of the props of `TrainingCluster`, from its signature and docstring."""
    documented = dict(_documented_arguments(inspect.getdoc(TrainingCluster) or ""))
    documented |= dict(_documented_arguments(inspect.getdoc(TrainingCluster.__init__) or ""))
    parameters = inspect.signature(TrainingCluster.__init__).parameters.values()
    props = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    missing = [name for name in props if "Default:" not in documented.get(name, "")]
    if missing:
        raise SystemExit(f"TrainingCluster's docstring must give a `Default:` for: {', '.join(missing)}")
    rows = [(name, *(part.strip() for part in documented[name].split("Default:", 1))) for name in props]
    cells = [f"| `{name}` | {what.rstrip('.')} | {default.rstrip('.')} |" for name, what, default in rows]
    return "\n".join(["| prop | what | default |", "|---|---|---|", *cells])


def _documented_arguments(docstring: str) -> Iterator[tuple[str, str]]:
    section = re.search(r"^Args:\n((?:[ ]+.*\n?|\n)+)", docstring, re.MULTILINE)
    if section is None:
        return
    for match in re.finditer(r"^    (\w+): (.*(?:\n {8,}.*)*)", section[1], re.MULTILINE):
        yield match[1], " ".join(match[2].split()).replace("|", "\\|")


def architecture() -> str:
    """Return a Mermaid flowchart of the default cluster: its parts, what they hold, and which refers to which."""
    app = App(builtin_cloud_formation_validation=False)
    stack = Stack(app, "Picture")
    cluster = TrainingCluster(stack, "Cluster")
    template = app.synth().get_stack_by_name("Picture").template["Resources"]
    part_of = dict(_parts(stack, cluster))
    held = {
        part: Counter(_LABEL.sub(" ", template[i]["Type"]).strip() for i in part_of if part_of[i] == part)
        for part in sorted(set(part_of.values()))
    }
    edges = {(part_of[a], part_of[b]) for a in part_of for b in _references(template[a]) if b in part_of}
    lines = ["flowchart LR"]
    for part, types in held.items():
        listing = "<br/>".join(f"{count} x {name}" if count > 1 else name for name, count in sorted(types.items()))
        lines.append(f'    {part}["<b>{part}</b><br/>{listing}"]')
    lines += [f"    {a} --> {b}" for a, b in sorted(edges) if a != b]
    return "\n".join(lines)


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
