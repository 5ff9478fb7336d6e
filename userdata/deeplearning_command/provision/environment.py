"""`deeplearning environment`: software environment of jobs, as declared and as installed on the nodes."""

import argparse
import json
import os
import sys
from typing import Any

from deeplearning_command.context import Context
from deeplearning_command.provision.progress import Progress, describe_progress
from deeplearning_command.remote.nodes import Remote
from deeplearning_command.terminal import RefusedError, align, draw_table, print_line
from deeplearning_contract.document import field, read_record
from deeplearning_contract.names import ENVIRONMENT_DIRECTORY
from deeplearning_contract.setting_parts import EnvironmentSettings
from deeplearning_node.health.findings import clean
from deeplearning_node.provision_status import DONE, ENVIRONMENT_STEP, Step, read_boot, read_status
from deeplearning_provision.status import Status, lock_file

ANSWER_SECONDS = 60.0
CURRENT = f"{ENVIRONMENT_DIRECTORY}/current"
DESCRIPTION = """
Show the software environment of jobs: the declaration, the result, and the progress on this node. The master makes it
once and keeps it on the shared file system, from which every node copies it, also in later clusters. With --build on
the master, the archive there is read to its end, and made again if it is damaged.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the action and the output format."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--all", action="store_true", dest="is_all", help="show every node; only on the master")
    what.add_argument("--build", action="store_true", help="make or install it now, and show the progress")
    what.add_argument("--shell", action="store_true", help="start a shell with its programs first in PATH")


def run(options: argparse.Namespace, context: Context) -> int:
    """Show, build or enter the environment; RefusedError if none was declared."""
    settings = context.facts.needs.environment
    if settings is None:
        raise RefusedError("the cluster must have an environment, got none; declare one and deploy, or use the image's")
    if options.is_all:
        return _show_all(context.remote, is_json=options.json)
    if options.build:
        return _build(context)
    if options.shell:
        _enter(settings, context)
    found = describe_node(settings, context)
    sys.stdout.write(f"{json.dumps(found)}\n" if options.json else _draw(found))
    return 0 if found["state"] == DONE else 1


def describe_node(settings: EnvironmentSettings, context: Context) -> dict[str, Any]:
    """Return the declared environment with its state on this node."""
    # Imported here, since they load botocore.
    from deeplearning_provision.environments.recipe import find_recipe  # noqa: PLC0415
    from deeplearning_provision.environments.site import SHARED_FOLDER  # noqa: PLC0415
    from deeplearning_provision.environments.store import COMPLETE, find_key  # noqa: PLC0415
    from deeplearning_provision.steps import ProvisionFailure  # noqa: PLC0415

    facts, root = context.facts, context.root
    step = read_status(root)[ENVIRONMENT_STEP]
    source = f"s3://{settings.file.bucket}/{settings.file.key}" if settings.file else settings.image
    found = {"kind": settings.kind, "source": source, "horovod": settings.horovod, **step.to_document()}
    link = context.path(CURRENT)
    found["current"] = link.readlink().name if link.is_symlink() else ""
    try:
        recipe, _ = find_recipe(facts, settings, root, context.programs)
    except ProvisionFailure as error:
        return {**found, "recipe": "", "digest": "", "shared": "", "state": "failed", "detail": error.cause}
    folder = context.path(facts.mount_point) / SHARED_FOLDER
    local = context.path(ENVIRONMENT_DIRECTORY)
    key = find_key(local, recipe.digest, read_boot(root)) or find_key(folder, recipe.digest) or recipe.digest
    is_shared = (folder / key / COMPLETE).exists()
    key = found["current"] if recipe.is_in_image and step.state == DONE else key
    shared = f"{facts.mount_point}/{SHARED_FOLDER}/{key}" if is_shared else ""
    return {**found, "recipe": recipe.digest, "digest": key, "shared": shared}


def _draw(found: dict[str, Any]) -> str:
    rows = [("declared", f"{found['kind']} {found['source']}".rstrip())]
    if found["horovod"]:
        rows.append(("horovod", found["horovod"]))
    rows.append(("digest", found["digest"] or "not known"))
    if found["kind"] != "container":
        rows.append(("shared", found["shared"] or "not made yet"))
        here = f"{CURRENT} -> {found['current']}" if found["current"] else "not installed yet"
        stale = found["current"] and found["current"] != found["digest"]
        rows.append(("here", f"{here}, which is another one" if stale else here))
    rows.append(("state", _describe_step(read_record(Step, found, "step"))))
    return align(rows)


def _describe_step(step: Step) -> str:
    return f"{step.state}{_describe_count(step)}: {clean(step.detail)}"


def _describe_count(step: Step) -> str:
    """Return the progress of a step in parentheses; empty without a count, or when it is done."""
    if step.state == DONE or not step.total:
        return ""
    if step.unit == "%":
        return f" ({step.done} %)"
    return f" ({describe_progress(step) or f'{step.done} of {step.total} {step.unit}'})"


def _show_all(remote: Remote, *, is_json: bool) -> int:
    found = remote.ask(["environment", "--json"], _read_node, seconds=ANSWER_SECONDS)
    absent = {"state": "no answer", "digest": ""}
    nodes = [
        {"host": host, **({**absent, "detail": node} if isinstance(node, str) else node)}
        for host, node in found.items()
    ]
    digests = {node["digest"] for node in nodes}
    if is_json:
        print_line(json.dumps(nodes, indent=2))
    else:
        rows = [(node["host"], node["state"], node["digest"] or "-", clean(node["detail"])) for node in nodes]
        total = f"{sum(node['state'] == DONE for node in nodes)} of {len(nodes)} nodes have the environment"
        total += "; they differ" if len(digests) > 1 else ""
        sys.stdout.write(draw_table([("HOST", "STATE", "DIGEST", ""), *rows], total))
    return 0 if len(digests) == 1 and all(node["state"] == DONE for node in nodes) else 1


def _read_node(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, **{key: field(document, key, str, "answer") for key in ("digest", "state", "detail")}}


def _build(context: Context) -> int:
    # Imported here, since they load botocore.
    from deeplearning_provision.environments.kinds import build_or_install  # noqa: PLC0415
    from deeplearning_provision.steps import Outcome, settle_step  # noqa: PLC0415

    context.require_login_user()
    try:
        with lock_file(context.root, ENVIRONMENT_STEP, is_patient=False):
            pass
    except BlockingIOError as error:
        raise RefusedError("another process is installing it; follow it with: deeplearning environment") from error
    progress = Progress(context.clock, lambda _, step: _describe_step(step), sys.stdout)
    status = Status(context.root, context.clock, progress.report)

    def build() -> str:
        build_or_install(context.facts, status, context.root, context.programs, context.clock, is_thorough=True)
        return status.get(ENVIRONMENT_STEP).detail

    outcome = settle_step(status, ENVIRONMENT_STEP, build, context.clock, tries=1)
    progress.finish()
    return 0 if outcome == Outcome.DONE else 1


def _enter(settings: EnvironmentSettings, context: Context) -> None:
    """Replace this process by a shell; never returns."""
    folder = context.path(CURRENT)
    if settings.kind == "container":
        raise RefusedError(f"--shell must have no container; run: docker run --rm -it {settings.image} bash")
    if not (folder / "bin" / "python").exists():
        raise RefusedError("the environment must be installed on this node; see: deeplearning environment")
    shell = os.environ.get("SHELL", "/bin/sh")
    variables = {"PATH": f"{folder}/bin:{os.environ.get('PATH', '')}", "VIRTUAL_ENV": str(folder)}
    os.execve(shell, [shell], {**os.environ, **variables})  # noqa: S606 - it is the user's own shell
