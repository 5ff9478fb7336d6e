"""`deeplearning environment`: the software in which jobs run, as it was declared and as it is on the nodes."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeplearning_command.provision.data_table import describe_progress
from deeplearning_command.remote.nodes import HostResult, Remote, read_facts
from deeplearning_command.terminal.errors import RefusedError
from deeplearning_command.terminal.text_table import align
from deeplearning_contract.document import read_record
from deeplearning_contract.names import ENVIRONMENT_DIRECTORY
from deeplearning_contract.setting_parts import EnvironmentSettings
from deeplearning_node.deadline import Clock
from deeplearning_node.health.cluster_check import COMMAND_FILE
from deeplearning_node.health.findings import clean
from deeplearning_node.node_facts import NodeFacts
from deeplearning_node.programs import Programs
from deeplearning_node.provision_status import DONE, ENVIRONMENT_STEP, Step, read_boot, read_status
from deeplearning_provision.status import Status, lock_file

if TYPE_CHECKING:
    from collections.abc import Callable

    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no other name

READY, NOT_READY = 0, 1
ASK_SECONDS = 60.0
CURRENT = f"{ENVIRONMENT_DIRECTORY}/current"
DESCRIPTION = """
Show the software in which jobs run: what was declared, what it was made into, and how far this node is with it. The
master makes it once, and keeps it on the shared file system, from which every node takes it, also those of later
clusters. With --build on the master, the archive there is read to its end, and made anew if it is damaged.
"""
EPILOG = "exit status: 0 the environment is there, 1 it is not, 2 none was declared or nobody could be asked"


def add_environment(subcommands: "Subcommands") -> None:
    """Add the subcommand and its options."""
    parser = subcommands.add_parser(
        "environment",
        aliases=["env"],
        help="show, build or enter the software environment of jobs",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--all", action="store_true", dest="is_all", help="ask every node; run it on the master")
    what.add_argument("--build", action="store_true", help="make or install it now, and show how that goes")
    what.add_argument("--shell", action="store_true", help="start a shell in which its programs come first")
    parser.set_defaults(run=run_environment)


def run_environment(options: argparse.Namespace, root: Path, programs: Programs) -> int:
    """
    Run the subcommand.

    Returns:
        The exit status.

    Raises:
        RefusedError: No environment was declared, or it cannot be built, entered or asked for here.
    """
    facts = read_facts(root)
    settings = facts.needs.environment
    if settings is None:
        raise RefusedError("the cluster must have an environment, got none; declare one and deploy, or use the image's")
    if options.is_all:
        return _ask_all(Remote.open(root, programs), is_json=options.json)
    if options.build:
        return _build(facts, root, programs)
    if options.shell:
        _enter(settings, root)
    found = describe_node(facts, settings, root, programs)
    sys.stdout.write(f"{json.dumps(found)}\n" if options.json else _draw(found))
    return READY if found["state"] == DONE else NOT_READY


def describe_node(facts: NodeFacts, settings: EnvironmentSettings, root: Path, programs: Programs) -> dict[str, Any]:
    """Return what was declared and how this node stands with it."""
    # Imported here: they bring botocore.
    from deeplearning_provision.environments.recipe import find_recipe  # noqa: PLC0415
    from deeplearning_provision.environments.site import SHARED_FOLDER  # noqa: PLC0415
    from deeplearning_provision.environments.store import COMPLETE, find_key  # noqa: PLC0415
    from deeplearning_provision.steps import ProvisionFailure  # noqa: PLC0415

    step = read_status(root)[ENVIRONMENT_STEP]
    source = f"s3://{settings.file.bucket}/{settings.file.key}" if settings.file else settings.image
    found = {"kind": settings.kind, "source": source, "horovod": settings.horovod, **step.to_document()}
    link = root / CURRENT.lstrip("/")
    found["current"] = link.readlink().name if link.is_symlink() else ""
    try:
        recipe, _ = find_recipe(facts, settings, root, programs)
    except ProvisionFailure as error:
        return {**found, "recipe": "", "digest": "", "shared": "", "state": "failed", "detail": error.cause}
    folder = root / facts.mount_point.lstrip("/") / SHARED_FOLDER
    local = root / ENVIRONMENT_DIRECTORY.lstrip("/")
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
    rows.append(
        ("state", f"{found['state']}{_describe_count(read_record(Step, found, 'step'))}: {clean(found['detail'])}")
    )
    return "\n".join([*align(rows), ""])


def _describe_count(step: Step) -> str:
    """Return how far a step is, in brackets; empty where nothing is counted or all is done."""
    if step.state == DONE or not step.total:
        return ""
    if step.unit == "%":
        return f" ({step.done} %)"
    return f" ({describe_progress(step) or f'{step.done} of {step.total} {step.unit}'})"


def _ask_all(remote: Remote, *, is_json: bool) -> int:
    results = remote.run_all(remote.hosts, f"{COMMAND_FILE} environment --json || true", seconds=ASK_SECONDS)
    nodes = [{"host": result.host, **_read_answer(result)} for result in results]
    digests = {node["digest"] for node in nodes}
    if is_json:
        sys.stdout.write(f"{json.dumps(nodes, indent=2)}\n")
    else:
        rows = [("HOST", "STATE", "DIGEST", "")]
        rows += [(node["host"], node["state"], node["digest"] or "-", clean(node["detail"])) for node in nodes]
        ready = sum(node["state"] == DONE for node in nodes)
        total = f"{ready} of {len(nodes)} nodes have the environment"
        total += "; not all have the same one" if len(digests) > 1 else ""
        sys.stdout.write("\n".join([*align(rows), "", total, ""]))
    return READY if len(digests) == 1 and all(node["state"] == DONE for node in nodes) else NOT_READY


def _read_answer(result: HostResult) -> dict[str, Any]:
    try:
        document = json.loads(result.output.strip().splitlines()[-1])
        return {**document, "digest": str(document["digest"]), "state": str(document["state"])}
    except (ValueError, IndexError, KeyError, TypeError):
        said = result.cause or result.output.strip()[-200:] or "it answered nothing"
        return {"state": "no answer", "digest": "", "detail": said}


def _build(facts: NodeFacts, root: Path, programs: Programs) -> int:
    # Imported here: they bring botocore.
    from deeplearning_command.provision.provision import check_user  # noqa: PLC0415
    from deeplearning_provision.environments.kinds import build_or_install  # noqa: PLC0415
    from deeplearning_provision.steps import Outcome, settle_step  # noqa: PLC0415

    check_user(facts)
    try:
        with lock_file(root, ENVIRONMENT_STEP, is_patient=False):
            pass
    except BlockingIOError as error:
        raise RefusedError("the node's own service is at it; follow it with: deeplearning environment") from error
    clock = Clock()
    status = Status(root, clock, _tell_progress())

    def act() -> str:
        build_or_install(facts, status, root, programs, clock, is_thorough=True)
        return status.get(ENVIRONMENT_STEP).detail

    return READY if settle_step(status, ENVIRONMENT_STEP, act, clock, tries=1) == Outcome.DONE else NOT_READY


def _tell_progress() -> "Callable[[str, Step], None]":
    last = [""]

    def tell(_name: str, step: Step) -> None:
        line = f"{step.state}{_describe_count(step)}: {clean(step.detail)}"
        if line != last[0]:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        last[0] = line

    return tell


def _enter(settings: EnvironmentSettings, root: Path) -> None:
    """Become a shell; never returns."""
    folder = root / CURRENT.lstrip("/")
    if settings.kind == "container":
        raise RefusedError(f"a container is entered with docker; run: docker run --rm -it {settings.image} bash")
    if not (folder / "bin" / "python").exists():
        raise RefusedError("the environment must be on this node, and is not yet; see: deeplearning environment")
    shell = os.environ.get("SHELL", "/bin/sh")
    variables = {"PATH": f"{folder}/bin:{os.environ.get('PATH', '')}", "VIRTUAL_ENV": str(folder)}
    os.execve(shell, [shell], {**os.environ, **variables})  # noqa: S606 - it is the user's own shell
