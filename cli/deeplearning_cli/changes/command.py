"""`deeplearning-cdk changes`: shows the effects of a deployment on a cluster in advance."""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cdk_rehearsal.assembly import AssemblyStack, read_stack
from cdk_rehearsal.errors import AssemblyError
from cdk_rehearsal.manifest import find_stacks
from deeplearning_cli.arguments import Commands, add_place
from deeplearning_cli.changes.effects import Change, Effect, Outcome
from deeplearning_cli.changes.templates import compare_templates
from deeplearning_cli.cloud_access import CloudAccess, open_cloud
from deeplearning_cli.errors import UnavailableError, report_error
from deeplearning_rehearsal.template import read_cluster

_HEADINGS = {
    Effect.REFUSE: "refused by CloudFormation",
    Effect.REPLACE: "replaced by new ones",
    Effect.MAY_REPLACE: "replaced by new ones, if CloudFormation finds it necessary",
    Effect.DELETE: "deleted",
    Effect.KEEP: "left behind, no longer part of the stack",
    Effect.CREATE: "created",
    Effect.UPDATE: "updated in place",
}
_MOST_PROPERTIES = 4


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "changes",
        help="show what a deployment would replace, delete or update, before it happens",
        description="Compare a synthesized stack with the deployed one by the rules of CloudFormation and of the "
        "services, and show what would be replaced, deleted or updated in place, and what happens to nodes, jobs and "
        "data. Read-only.",
        epilog="exit status: 0 nothing that runs or is stored would end, 1 nodes, jobs or data would end or AWS would "
        "refuse the deployment, 2 the comparison failed, 130 interrupted; example: cdk synth --quiet && "
        "deeplearning-cdk changes",
    )
    add_place(parser, may_be_rehearsed=False)
    add = parser.add_argument
    add("--assembly", default="cdk.out", metavar="DIR", help="the cloud assembly of `cdk synth` (default: %(default)s)")
    add("--deployed", metavar="FILE", help="the deployed template, instead of asking CloudFormation")
    add("--json", action="store_true", help="print a JSON list with an entry for each resource")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compare an assembly with the deployed stack; return 0 if nothing is lost, else 1, and 2 on failure."""
    try:
        wanted = _read_wanted(Path(arguments.assembly), arguments.stack)
        deployed = _read_deployed(arguments, wanted.name, lambda: open_cloud(arguments))
        changes = compare_templates(deployed, wanted.template)
    except (AssemblyError, UnavailableError) as error:
        return report_error(error, as_json=arguments.json)
    if arguments.json:
        print(json.dumps([_to_document(change) for change in changes], indent=2))
    else:
        print("\n".join(render_changes(wanted.name, changes)))
    return int(any(change.is_harmful for change in changes))


def _read_wanted(assembly: Path, name: str | None) -> AssemblyStack:
    """Return the stack that is meant: by default the only one, or of several the one with a cluster."""
    if name is None and len(find_stacks(assembly)) > 1:
        return read_cluster(assembly, None)
    return read_stack(assembly, name)


def render_changes(stack: str, changes: Sequence[Change]) -> list[str]:
    """Return the changes of a stack as lines, irreversible ones first."""
    if not changes:
        return [f"{stack}: nothing changes"]
    lines = [f"{stack}: {len(changes)} resource{'s' if len(changes) > 1 else ''} would change"]
    for effect, heading in _HEADINGS.items():
        chosen = [change for change in changes if change.effect is effect]
        lines += ["", f"{heading}:"] if chosen else []
        for change in chosen:
            mark = "!" if change.is_harmful else " "
            lines.append(f"{mark} {change.path}  {change.resource_type}{_by(change)}")
    lines += ["", *_explain(changes)]
    return lines


def _by(change: Change) -> str:
    if not change.properties:
        return ""
    shown = ", ".join(change.properties[:_MOST_PROPERTIES])
    more = len(change.properties) - _MOST_PROPERTIES
    return f"  by {shown}" + (f" and {more} more" if more > 0 else "")


def _explain(changes: Sequence[Change]) -> list[str]:
    """Return the outcomes of the changes, each once with the resources that it is about, harmful ones first."""
    names: dict[Outcome, list[str]] = {}
    for change in changes:
        for outcome in change.outcomes:
            names.setdefault(outcome, []).append(change.path)
    found = sorted(names, key=lambda outcome: (not outcome.loses_data, not outcome.is_refused, not outcome.is_harmful))
    return [outcome.note.replace("{names}", ", ".join(names[outcome])) for outcome in found] or [
        "nodes, jobs and data stay as they are"
    ]


def _read_deployed(
    arguments: argparse.Namespace, stack: str, open_account: Callable[[], CloudAccess]
) -> dict[str, Any]:
    if arguments.deployed is not None:
        try:
            template: dict[str, Any] = json.loads(Path(arguments.deployed).read_text())
        except (OSError, ValueError) as error:
            found = error.strerror if isinstance(error, OSError) else error
            raise UnavailableError(
                f"--deployed must be a template in JSON, got {arguments.deployed}: {found}; give another file"
            ) from error
        return template
    access = open_account()
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - slow, and only needed here

    try:
        body = access.clients("cloudformation").get_template(StackName=stack, TemplateStage="Original")["TemplateBody"]
    except (BotoCoreError, ClientError) as error:
        raise UnavailableError(
            f"could not read the deployed template of {stack}: {error}; check --region and --profile, or give "
            "--deployed FILE"
        ) from error
    return dict(body) if isinstance(body, dict) else dict(json.loads(body))


def _to_document(change: Change) -> dict[str, Any]:
    return {
        "logical_id": change.logical_id,
        "path": change.path,
        "type": change.resource_type,
        "effect": change.effect.value,
        "properties": list(change.properties),
        "loses_data": change.loses_data,
        "ends_nodes": change.ends_nodes,
        "ends_jobs": change.ends_jobs,
        "is_refused": change.is_refused,
    }
