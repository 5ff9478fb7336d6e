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
from deeplearning_cli.cloud_access import CloudAccess, open_cloud
from deeplearning_cli.errors import UnavailableError, report_error
from deeplearning_cli.template_changes import EMR_CLUSTER, Change, Effect, compare_templates
from deeplearning_rehearsal.template import read_cluster

_HEADINGS = {
    Effect.REFUSE: "CloudFormation refuses to update",
    Effect.REPLACE: "replaced by new ones",
    Effect.MAY_REPLACE: "replaced by new ones, if CloudFormation finds it necessary",
    Effect.DELETE: "deleted",
    Effect.KEEP: "left behind, no longer part of the stack",
    Effect.CREATE: "created",
    Effect.UPDATE: "updated in place",
}
_MOST_PROPERTIES = 4
_GROUP, _REQUEST = "AWS::AutoScaling::AutoScalingGroup", "Custom::RequestedCapacity"
_SIZES = frozenset({"DesiredCapacity", "MaxSize", "MinSize"})
_COUNTS = frozenset({"Master", "Workers"})
_RELEASE = "ProgramsRelease"
"""Part of the logical id of the SSM parameter from which members on EMR start."""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "changes",
        help="show what a deployment would replace, delete or update, before it happens",
        description="Compare a synthesized stack with the deployed one by CloudFormation's own rules, and show what "
        "would be replaced, deleted or updated in place, and the consequences for nodes and data. Read-only.",
        epilog="exit status: 0 nothing would be lost, 1 data or a cluster on EMR would be lost or CloudFormation would "
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
    return int(any(_is_harmful(change) or change.effect is Effect.REFUSE for change in changes))


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
            mark = "!" if _is_harmful(change) else " "
            lines.append(f"{mark} {change.path}  {change.resource_type}{_by(change)}")
    lines += ["", *_explain(changes)]
    return lines


def _is_harmful(change: Change) -> bool:
    return change.loses_data or change.ends_jobs


def _by(change: Change) -> str:
    if not change.properties:
        return ""
    shown = ", ".join(change.properties[:_MOST_PROPERTIES])
    more = len(change.properties) - _MOST_PROPERTIES
    return f"  by {shown}" + (f" and {more} more" if more > 0 else "")


def _explain(changes: Sequence[Change]) -> list[str]:
    """Yield the consequences of the changes for nodes and data."""
    notes = []
    types = {change.resource_type: change for change in changes if change.effect is not Effect.CREATE}
    if lost := [change.path for change in changes if change.loses_data]:
        notes.append(
            f"DATA: {', '.join(lost)} would be replaced or deleted, with the data in it; back the data up before you "
            "deploy this, or revert the change"
        )
    if any(change.effect is Effect.REFUSE for change in changes):
        notes.append(
            "setup_timeout must keep the value of the creation: CloudFormation does not update a WaitCondition, and "
            "the deployment would fail; restore its former value"
        )
    deleted = [change.path for change in changes if change.resource_type == _GROUP and change.effect is Effect.DELETE]
    if deleted:
        notes.append(
            f"nodes: {', '.join(deleted)} would be deleted, with any node in it; `deeplearning-cdk status` shows which "
            "candidate the cluster has"
        )
    if "AWS::EC2::LaunchTemplate" in types or "Custom::PinnedImage" in types:
        notes.append(
            "nodes: running nodes stay as they are; nodes that launch later start from the new template. "
            "`deeplearning-cdk upgrade` replaces them, workers first"
        )
    if "Custom::PinnedImage" in types:
        notes.append("image: its parameter is read again, so new nodes may start from another image")
    notes += _explain_capacity(changes)
    notes += _explain_emr(changes)
    return notes or ["nodes and data stay as they are"]


def _explain_capacity(changes: Sequence[Change]) -> list[str]:
    """Yield the number of nodes afterwards, as far as the changes determine it."""
    notes = []
    requests = [change for change in changes if change.resource_type == _REQUEST]
    if any(change.effect is Effect.CREATE for change in requests):
        notes.append("capacity: a cluster that has nodes stays as it is; another count is set by a later deployment")
    if any(change.effect is Effect.UPDATE and not _COUNTS.isdisjoint(change.properties) for change in requests):
        notes.append(
            "capacity: the count in the props is set once, even if another size was set by hand; a cluster that has "
            "failed, or was stopped and not scaled up since, is left alone"
        )
    groups = (change for change in changes if change.resource_type == _GROUP and change.effect is not Effect.CREATE)
    if not notes and any(not _SIZES.isdisjoint(change.properties) for change in groups):
        notes.append(
            "capacity: the group's limits were changed in the props and are set; its desired capacity stays as it was "
            "adjusted, unless it lies outside of them"
        )
    return notes


def _explain_emr(changes: Sequence[Change]) -> list[str]:
    """Yield the consequences for a cluster on EMR, which is one resource with all its instances."""
    notes = []
    for change in (change for change in changes if change.resource_type == EMR_CLUSTER):
        if change.effect in (Effect.REPLACE, Effect.MAY_REPLACE):
            notes.append(
                f"EMR: {change.path} would be replaced: a new cluster starts while the old one runs, which takes the "
                "quota of both, and then the old one ends with its jobs and its HDFS; the shared file system stays, so "
                "a job that is submitted again resumes from its newest checkpoint"
            )
        elif any(path.endswith("InstanceGroup.InstanceCount") for path in change.properties):
            notes.append(
                "EMR: the group is resized in place; a new instance joins by itself, and a running job keeps its "
                "ranks; a smaller group ends instances with the ranks on them"
            )
    if any(_RELEASE in change.logical_id and change.effect is Effect.UPDATE for change in changes):
        notes.append(
            "EMR: running members stay as they are; an instance that EMR launches later starts from the new release"
        )
    return notes


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
    }
