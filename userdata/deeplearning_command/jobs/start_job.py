"""`deeplearning start-job`: a job as `deeplearning-cdk submit` sends it, in the source folder that it uploaded."""

import argparse
import base64
import binascii
import hashlib
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from deeplearning_command.context import Context
from deeplearning_command.jobs.plan import plan_job
from deeplearning_command.jobs.run import run_job
from deeplearning_command.terminal import RefusedError
from deeplearning_contract.document import ContractError
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.setting_parts import ScriptSettings
from deeplearning_provision.archives.extraction import extract
from deeplearning_provision.archives.reader import TAR_GZIP
from deeplearning_provision.archives.tree_writer import UnsafeNameError
from deeplearning_provision.steps import ProvisionFailure

SOURCE_FOLDER = "source"
_DIGITS = 16
_THREADS = 8
_WATCH_SECONDS = 1.0
_COMPILED = "__pycache__"
DESCRIPTION = "Start a job from its definition, the base64 of the JSON that `deeplearning-cdk submit` sends."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the definition, and whether the command waits for the end of the job."""
    parser.add_argument("definition", metavar="BASE64", help="the job's definition")
    parser.add_argument("--detach", action="store_true", help="return when the job has started")
    parser.add_argument("--plan", action="store_true", help="print the plan instead, as `deeplearning plan`")
    parser.add_argument("--json", action="store_true", help="with --plan, print it as JSON")
    parser.add_argument(
        "--end-with-parent", action="store_true", help="end the job when the process that started the command ends"
    )


def run(options: argparse.Namespace, context: Context) -> int:
    """Fetch the source folder, and run or plan the job in it; RefusedError if it cannot start."""
    if options.end_with_parent:  # First, since it may end while the source is fetched.
        threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    context.require_login_user()
    job = read_definition(options.definition)
    declared = [source.name for source in context.facts.needs.data]
    for name in job.data:
        if name not in declared:
            raise RefusedError(
                f"data must be declared by the cluster, got {name!r}; it declares {', '.join(declared) or 'none'}"
            )
    if job.source is not None:
        os.chdir(unpack_source(context, job.name, job.source, is_checked=not options.plan))
    if options.plan:
        return plan_job(job, context, as_json=options.json)
    return run_job(job, context, detaches=options.detach)


def _end_with(parent: int) -> None:
    """
    Interrupt this process when its parent has ended.

    EMR cancels a step by a signal to its child process (EMR management guide, "Cancel steps"). Whether that is this
    command or a process that runs it, which may not pass the signal on, the guide leaves open.
    """
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def read_definition(text: str) -> JobDefinition:
    """Read the argument; RefusedError for a malformed one."""
    try:
        return JobDefinition.from_json(base64.b64decode(text, validate=True).decode())
    except (binascii.Error, UnicodeDecodeError, ContractError) as error:
        raise RefusedError(f"definition must be the base64 of a job's JSON: {error}") from error


def unpack_source(context: Context, name: str, source: ScriptSettings, *, is_checked: bool) -> Path:
    """
    Return the folder of a packed source, `jobs/<name>/source/<digest>` on the shared file system.

    Other jobs may write there, so with `is_checked` the folder has exactly the files of the source: it is compared with
    the packed one, whose digest the definition has.

    Effects: downloads and unpacks it; a folder with other files is kept beside it, under a name with `changed`. Runs
    that began from another source keep theirs.
    """
    folder = context.jobs_path / name / SOURCE_FOLDER / source.sha256[:_DIGITS]
    if folder.is_dir() and not is_checked:
        return folder
    from deeplearning_provision.s3 import ObjectStore  # noqa: PLC0415 - half a second of botocore, for a job alone

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=folder.parent))
    except OSError as error:
        raise RefusedError(f"could not write the job's source: {error}") from error
    try:
        archive, content = work / "source.tar.gz", work / "content"
        content.mkdir(0o755)
        store = ObjectStore(context.facts.region, context.clock)
        store.fetch_verified(source.bucket, source.key, source.sha256, archive, lambda _: None)
        extract(archive, TAR_GZIP, content, _THREADS, lambda _: None)
        _install(content, folder)
    except UnsafeNameError as error:
        raise RefusedError(f"could not unpack the job's source: {error}; {error.remedy}") from error
    except (OSError, ProvisionFailure) as error:
        raise RefusedError(f"could not fetch s3://{source.bucket}/{source.key}: {error}; submit again") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder


def _install(content: Path, folder: Path) -> None:
    """Put the unpacked source in its place, unless exactly that is there."""
    if os.path.lexists(folder):
        change = find_change(content, folder)
        if not change:
            return
        kept = Path(tempfile.mkdtemp(prefix=f"{folder.name}-changed-", dir=folder.parent))
        folder.rename(kept / folder.name)
        changed = f"the source was changed on the shared file system ({change})"
        sys.stderr.write(f"deeplearning start-job: {changed}; it is unpacked anew, and {kept} has what was there\n")
    try:
        content.rename(folder)
    except OSError:
        if find_change(content, folder):  # Else another command was faster.
            raise


def find_change(wanted: Path, found: Path) -> str:
    """
    Return a path that differs between two folders, and how; empty for none.

    Files have the same bytes, kind, mode, owner and number of links. Effects: removes the folders of compiled modules
    that only the second one has, which Python makes and would run in place of the source.
    """
    for path in sorted({*_list_paths(wanted), *_list_paths(found)}):
        ours, theirs = wanted / path, found / path
        if not os.path.lexists(ours):
            if path.name == _COMPILED and theirs.is_dir() and not theirs.is_symlink():
                shutil.rmtree(theirs)
            elif os.path.lexists(theirs):
                return f"{path} is added"
        elif not os.path.lexists(theirs):
            return f"{path} is absent"
        elif _describe(ours) != _describe(theirs):
            return f"{path} is another"
    return ""


def _list_paths(folder: Path) -> Iterator[Path]:
    """Yield the paths below a folder, and that of itself; what links lead to is not entered."""
    yield Path()
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent, name).relative_to(folder) for name in [*folders, *files])


def _describe(path: Path) -> tuple[object, ...]:
    found = path.lstat()
    if stat.S_ISDIR(found.st_mode):
        return (found.st_mode, found.st_uid)
    if stat.S_ISLNK(found.st_mode):
        return (stat.S_IFLNK, path.readlink())
    if not stat.S_ISREG(found.st_mode):
        return (found.st_mode, found.st_ino)
    return (found.st_mode, found.st_uid, found.st_nlink, hashlib.sha256(path.read_bytes()).digest())
