"""The CDK CLI, run for one region, and the assembly that it writes."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from cdk_rehearsal.manifest import find_stacks
from deeplearning_cli.account.demand import list_demands
from deeplearning_cli.errors import UnavailableError
from deeplearning_rehearsal.template import read_cluster

ASSEMBLY = Path("cdk.out")
"""Folder to which an app is synthesized, the CDK's default, which apps may name themselves."""
_STANDARD_ERROR = 2
_OPEN = "unknown-region"
"""Region of a stack in an assembly whose app leaves it to the CDK CLI."""


@dataclass(frozen=True)
class Target:
    """
    The stack in one region.

    Attributes:
        region: The region.
        stack: Name of the stack there.
        path: Path of the stack in the app.
        assembly: The assembly for the region.
    """

    region: str
    stack: str
    path: str
    assembly: Path


@dataclass(frozen=True, kw_only=True)
class CdkProgram:
    """
    The CDK CLI.

    Attributes:
        words: The program.
        app: The user's `--app`; None for that of `cdk.json`.
        profile: The user's `--profile`; None for the default.
        further: The user's further arguments of `cdk deploy`.
        lock: Descriptor of the lock of the deployment, which the CLI inherits: one that outlives this command keeps it.
    """

    words: tuple[str, ...]
    app: str | None
    profile: str | None
    further: tuple[str, ...]
    lock: int

    def synthesize(self, region: str) -> None:
        """Synthesize the app for a region into `cdk.out`; UnavailableError if that fails."""
        app = ("--app", self.app) if self.app else ()
        words = ("synth", "--quiet", *app, "--output", str(ASSEMBLY), *find_context(self.further))
        if status := self._run(words, region, output=_STANDARD_ERROR):
            raise UnavailableError(f"app must synthesize for {region}, `cdk synth` ended with {status}; see its output")

    def deploy(self, target: Target) -> int:
        """Deploy a stack to its region, and return the exit status."""
        return self._run(("deploy", "--app", str(target.assembly), target.path, *self.further), target.region)

    def _run(self, words: Sequence[str], region: str, output: int | None = None) -> int:
        # The CLI takes AWS_REGION before the profile's region, and hands the app the region as CDK_DEFAULT_REGION
        # (aws-cdk 2.1148.1).
        environment = os.environ | {"AWS_REGION": region, "AWS_DEFAULT_REGION": region}
        profile = ("--profile", self.profile) if self.profile else ()
        command = [*self.words, *words, *profile]
        return subprocess.run(command, env=environment, stdout=output, pass_fds=(self.lock,), check=False).returncode


def find_program() -> tuple[str, ...]:
    """
    Return the CDK CLI that this folder's `package.json` pins, else that on the PATH, else the one that npx fetches.

    Raises:
        UnavailableError: There is none.
    """
    pinned = Path("node_modules/.bin/cdk").absolute()
    if pinned.exists():
        return (str(pinned),)
    for words in (("cdk",), ("npx", "cdk")):
        if shutil.which(words[0]):
            return words
    raise UnavailableError("cdk must be on PATH, got neither cdk nor npx; run: npm install --global aws-cdk@latest")


def find_context(words: Sequence[str]) -> tuple[str, ...]:
    """Return the context among arguments of `cdk deploy`, which the synthesis needs."""
    found: list[str] = []
    for word, following in pairwise((*words, "")):
        if word in ("-c", "--context"):
            found += ["--context", following]
        elif word.startswith("--context="):
            found.append(word)
    return tuple(found)


def copy_assembly(folder: Path) -> Path:
    """Copy `cdk.out` to a folder, in place of what is there, and return the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    return shutil.copytree(ASSEMBLY, folder, symlinks=True)


def read_target(assembly: Path, name: str | None, region: str) -> Target:
    """
    Return the cluster's stack for a region, by its name or path; None for the only one.

    Raises:
        AssemblyError: The folder is no assembly, or there is not exactly one such stack.
        UnavailableError: Its app sets another region, or the cluster is not on EC2.
    """
    stack = read_cluster(assembly, name)
    if not list_demands(stack.templates):
        raise UnavailableError(
            f"stack {stack.name} must have Auto Scaling groups of nodes, got none; deploy it with: npx cdk deploy"
        )
    entry = next(each.entry for each in find_stacks(assembly) if each.path == stack.path)
    found = str(entry.get("environment", _OPEN)).rpartition("/")[2]
    if found not in (_OPEN, region):
        raise UnavailableError(
            f"stack {stack.name} must be of {region} or leave its region open, got {found} from its app; name {found} "
            'alone in --regions, or give the stack env=cdk.Environment(region=os.environ["CDK_DEFAULT_REGION"])'
        )
    return Target(region, stack.name, stack.path, assembly)
