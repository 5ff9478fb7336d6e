"""`deeplearning start-job`: a job as `deeplearning-cdk submit` sends it, in the source folder that it uploaded."""

import argparse
import base64
import binascii
import os
import shutil
import signal
import tempfile
import threading
import time
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
    context.require_login_user()
    job = read_definition(options.definition)
    declared = [source.name for source in context.facts.needs.data]
    for name in job.data:
        if name not in declared:
            raise RefusedError(
                f"data must be declared by the cluster, got {name!r}; it declares {', '.join(declared) or 'none'}"
            )
    if job.source is not None:
        os.chdir(unpack_source(context, job.name, job.source))
    if options.plan:
        return plan_job(job, context, as_json=options.json)
    if options.end_with_parent:
        threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
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


def unpack_source(context: Context, name: str, source: ScriptSettings) -> Path:
    """
    Return the folder of a packed source, `jobs/<name>/source/<digest>` on the shared file system.

    Effects: downloads and unpacks it unless it is there. Runs that began from another source keep theirs.
    """
    folder = context.jobs_path / name / SOURCE_FOLDER / source.sha256[:_DIGITS]
    if folder.is_dir():
        return folder
    from deeplearning_provision.s3 import ObjectStore  # noqa: PLC0415 - half a second of botocore, for a new source alone

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
        try:
            content.rename(folder)
        except OSError:
            if not folder.is_dir():  # Else another command was faster.
                raise
    except UnsafeNameError as error:
        raise RefusedError(f"could not unpack the job's source: {error}; {error.remedy}") from error
    except (OSError, ProvisionFailure) as error:
        raise RefusedError(f"could not fetch s3://{source.bucket}/{source.key}: {error}; submit again") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder
