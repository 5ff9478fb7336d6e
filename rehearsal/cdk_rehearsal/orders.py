"""Creates and deletes stacks in several orders, without booting an instance."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cdk_rehearsal.assembly import AssemblyStack, read_stacks
from cdk_rehearsal.cache import find_cache
from cdk_rehearsal.embedded_aws.base.cloud_options import CloudOptions, ScalingPace
from cdk_rehearsal.embedded_aws.cloud import EmbeddedAws
from cdk_rehearsal.embedded_aws.eks.host import ClusterNode, ClusterOrder, RunningCluster
from cdk_rehearsal.embedded_aws.functions.javascript_sdk import prepare_sdk
from cdk_rehearsal.embedded_aws.sagemaker.containers import ContainerOrder, RunningContainer
from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.key_pairs import assume_key_pairs
from cdk_rehearsal.machine import Machine
from cdk_rehearsal.run.progress import report_line

_SECONDS = 120.0
_AT_ONCE = ScalingPace(reaction=0.0, launch=0.0, failure=0.0, termination=0.0, notification_gap=0.0)


class _NoMachines:
    """Boots nothing."""

    def boot(self, machine: Machine) -> None:
        """Do nothing."""

    def power_off(self, instance_id: str) -> None:
        """Do nothing."""


class _NoContainers:
    """Lets a stack of training jobs be created, which no resource of it starts."""

    def start(self, order: ContainerOrder, on_line: Callable[[str], None]) -> RunningContainer:  # noqa: ARG002
        """Refuse: nothing runs a container here."""
        raise RehearsalError(f"no container runs while orders of creation are tried, got {order.name} of {order.job}")

    def separate(self, addresses: Sequence[str]) -> None:
        """Do nothing."""

    def remove(self, container: RunningContainer) -> None:
        """Do nothing."""


class _NoCluster:
    """A control plane that does not run."""

    endpoint, authority = "https://127.0.0.1", ""

    def add_node(self, node: ClusterNode) -> None:
        """Do nothing."""

    def remove_node(self, instance_id: str) -> None:
        """Do nothing."""

    def drain_node(self, instance_id: str, seconds: float) -> bool:  # noqa: ARG002
        """Do nothing: no pod is there."""
        return True

    def change_node(self, node: ClusterNode) -> None:
        """Do nothing."""

    def grant(self, principal: str, policy: str, namespaces: Sequence[str]) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


class _NoClusters:
    """Lets a stack with a cluster be created."""

    def start(self, order: ClusterOrder) -> RunningCluster:  # noqa: ARG002
        """Start nothing."""
        return _NoCluster()


def try_orders(
    assembly: Path | str,
    count: int,
    *,
    stacks: Sequence[str] = (),
    parameters: Mapping[str, str] | None = None,
    options: CloudOptions | None = None,
    cache: Path | str | None = None,
) -> tuple[str, ...]:
    """
    Create and delete stacks with their resources in different orders, and return the failures.

    CloudFormation creates resources that do not depend on each other in any order, so a missing dependency fails some
    deployments only. No instance boots, and the stack does not wait for signals; functions run. Reports each order on
    standard error. Needs no root.

    Args:
        assembly: Folder that `cdk synth` wrote.
        count: Number of orders. Their seeds are 1 to `count`, the seeds of `Plan`.
        stacks: Names, paths or patterns of stacks; what they need is with them. Default: all, those of Stages too.
        parameters: Values of the templates' parameters, each for all stacks that declare it. Default: their defaults.
        options: Options of the embedded AWS. Default: an empty account, and every order that the templates allow.
        cache: Folder that keeps what is downloaded once: what functions name of the AWS SDK for JavaScript.
            Default: that of this user.

    Raises:
        ValueError: The count is less than 1.
        UnsupportedError: The rehearsal does not implement all of the template.
        AssemblyError: The assembly cannot be deployed here.
        DefectError: An order failed because of the rehearsal itself.
        UnavailableError: The AWS SDK for JavaScript cannot be fetched.
    """
    if count < 1:
        raise ValueError(f"orders must be at least 1, got {count}")
    chosen = read_stacks(Path(assembly), stacks)
    options = replace(
        options or CloudOptions(),
        key_pairs=assume_key_pairs(chosen),
        node_modules=prepare_sdk(chosen, find_cache() if cache is None else Path(cache), report_line),
        pace=_AT_ONCE,
        waits_for_signals=False,
        lose_notifications=True,
    )
    failures = []
    for seed in range(1, count + 1):
        failure = _try_order(chosen, replace(options, seed=seed), parameters)
        report_line(f"seed {seed} of {count}: {failure or 'created and deleted'}")
        failures += [f"seed {seed}: {failure}"] if failure else []
    return tuple(failures)


def print_failures(failures: Sequence[str], *, as_json: bool) -> int:
    """Print the failures of orders, and return the exit status: 0 without one, else 1."""
    lines = json.dumps({"failures": list(failures)}, indent=2) if as_json else "\n".join(failures)
    sys.stdout.write(f"{lines}\n" if lines else "")
    if failures:
        report_line("CloudFormation may take each of these orders; --seed repeats one with instances")
    return int(len(failures) > 0)


def _try_order(stacks: Sequence[AssemblyStack], options: CloudOptions, parameters: Mapping[str, str] | None) -> str:
    """Return why a stack could not be created or deleted; empty when all could."""
    with EmbeddedAws(
        address="127.0.0.1",
        port=0,
        machines=_NoMachines(),
        containers=_NoContainers(),
        clusters=_NoClusters(),
        options=options,
    ) as aws:
        for stack in stacks:
            aws.deploy(stack, parameters=parameters)
            outcome = aws.wait(_SECONDS)
            if outcome.status != "CREATE_COMPLETE":
                aws.require_soundness()
                failed = [f"{e.logical_id}: {e.reason}" for e in outcome.events if e.status == "CREATE_FAILED"]
                return failed[0] if failed else f"stack {stack.name} is in {outcome.status} after {_SECONDS:g} s"
        for stack in reversed(stacks):
            aws.place.client("cloudformation").delete_stack(StackName=stack.name)
            outcome = aws.wait(_SECONDS, stack.name)
            if outcome.status != "DELETE_COMPLETE":
                aws.require_soundness()
                return f"{outcome.status}: {outcome.reason}"
        return next((f"denied {action}: {said}" for action, said in aws.authorizer.record.denials().items()), "")
