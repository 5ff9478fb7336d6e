"""`deeplearning-cdk deploy`: runs `cdk deploy` for one region after the other, until one has the capacity."""

import argparse
import fcntl
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path

from cdk_rehearsal.errors import AssemblyError
from deeplearning_cli.arguments import Commands
from deeplearning_cli.cloud_access import CloudAccess, open_cloud
from deeplearning_cli.deploy.cdk_program import ASSEMBLY, CdkProgram, Target, copy_assembly, find_program, read_target
from deeplearning_cli.deploy.journal import Journal
from deeplearning_cli.deploy.region_search import RegionSearch, StopError, call_aws
from deeplearning_cli.errors import UnavailableError, report_error
from deeplearning_view.aws_responses import ViewError

_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]+")


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "deploy",
        help="deploy a cluster to the first of several regions that has the capacity",
        usage="deeplearning-cdk deploy --regions A,B [options] [STACK] [-- ARGUMENT ...]",
        description="Run `cdk deploy` for one region after the other, in their order, until one launches the cluster. "
        "When EC2 refuses a region's instances for lack of capacity or quota, the stack is deleted before the next "
        "region is asked; any other failure ends the command. A stack that was there before is updated, and never "
        "deleted. Arguments behind `--` are those of `cdk deploy`. The journal, cdk.out.regions/journal.json beside "
        "the assembly, lets the same command go on after an interruption.",
        epilog="exit status: 0 one region launched it, 1 none did, or the deployment failed for a cause that other "
        "regions may share, 2 it could not be begun or followed, 130 interrupted; example: deeplearning-cdk deploy "
        "--regions us-east-1,us-west-2 -- -c workers.instance_type=g5.12xlarge --require-approval never; rights beside "
        "those of cdk deploy: cloudformation:DeleteStack, and those of deeplearning-cdk status",
    )
    add = parser.add_argument
    add("stack", nargs="?", metavar="STACK", help="which stack of the app (default: the only one that is a cluster)")
    add("--regions", required=True, type=_read_regions, metavar="A,B", help="the regions, the preferred one first")
    add("--app", metavar="APP", help="command of the app, or folder of an assembly (default: the app of cdk.json)")
    add("--profile", metavar="NAME", help="profile of the AWS CLI (default: AWS_PROFILE, or the default one)")
    add("--again", action="store_true", help="ask the regions again that refused the cluster before")
    parser.set_defaults(run=run, command=())


def _read_regions(text: str) -> tuple[str, ...]:
    regions = tuple(text.split(","))
    if len(set(regions)) < len(regions) or not all(map(_REGION.fullmatch, regions)):
        raise argparse.ArgumentTypeError(f"must be regions, as us-east-1,us-west-2, each once, got {text!r}")
    return regions


def run(arguments: argparse.Namespace) -> int:
    """Deploy to the first region that has the capacity; return 0 if one has, 1 if none has, and 2 on failure."""
    is_assembly = arguments.app is not None and Path(arguments.app).is_dir()
    assembly = Path(arguments.app).resolve() if is_assembly else ASSEMBLY.absolute()
    folder = assembly.with_name(f"{assembly.name}.regions")
    try:
        with _hold(folder) as lock:
            cdk = CdkProgram(
                words=find_program(),
                app=arguments.app,
                profile=arguments.profile,
                further=tuple(arguments.command),
                lock=lock,
            )
            journal = Journal(folder / "journal.json")
            targets = tuple(
                read_target(assembly, arguments.stack, region)
                if is_assembly
                else _synthesize(cdk, arguments.stack, region, folder)
                for region in arguments.regions
            )
            open_region = lru_cache(partial(_open, arguments.profile))
            sts = open_region(arguments.regions[0], None).clients("sts")
            account = str(call_aws(sts.get_caller_identity)["Account"])
            RegionSearch(
                account=account,
                targets=targets,
                journal=journal,
                cdk=cdk,
                open_region=open_region,
                sleep=time.sleep,
                report=_report,
            ).run(is_again=arguments.again)
    except (AssemblyError, UnavailableError, ViewError, StopError) as error:
        return report_error(error)
    return 0


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def _hold(folder: Path) -> Iterator[int]:
    """Wait for another deployment from the folder, and keep others out; yield the descriptor of the lock."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _report(f"waiting for another deployment that uses {folder}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def _synthesize(cdk: CdkProgram, stack: str | None, region: str, folder: Path) -> Target:
    """Return the stack for a region, from an assembly of its own, since the next synthesis replaces `cdk.out`."""
    _report(f"{region}: synthesizing")
    cdk.synthesize(region)
    return read_target(copy_assembly(folder / region), stack, region)


def _open(profile: str | None, region: str, stack: str | None) -> CloudAccess:
    return open_cloud(argparse.Namespace(profile=profile, region=region, stack=stack, rehearsal=None))
