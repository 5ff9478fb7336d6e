"""Creates and deletes a stack in several orders, without booting an instance."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cdk_rehearsal.embedded_aws.cloud import EmbeddedAws
from cdk_rehearsal.embedded_aws.cloud_options import CloudOptions, ScalingPace
from cdk_rehearsal.machine import Machine
from cdk_rehearsal.run.progress import tell

_SECONDS = 120.0
_AT_ONCE = ScalingPace(reaction=0.0, launch=0.0, failure=0.0, termination=0.0, notification_gap=0.0)


class _NoMachines:
    """Boots nothing."""

    def boot(self, machine: Machine) -> None:
        """Do nothing."""

    def power_off(self, instance_id: str) -> None:
        """Do nothing."""


def try_orders(
    assembly: Path,
    stack: str | None,
    count: int,
    options: CloudOptions,
    parameters: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """
    Create and delete a stack in the orders of the seeds 1 to `count`, and return what failed, a line an order.

    No instance boots, and the stack waits for no signal. Reports each order on standard error.

    Raises:
        UnsupportedError: The rehearsal does not implement all of the template.
        AssemblyError: The assembly cannot be deployed here.
    """
    problems = []
    for seed in range(1, count + 1):
        end = _try_order(
            assembly, stack, replace(options, seed=seed, waits_for_signals=False, pace=_AT_ONCE), parameters
        )
        tell(f"order {seed} of {count}: {end or 'created and deleted'}")
        problems += [f"order {seed}: {end}"] if end else []
    return tuple(problems)


def _try_order(assembly: Path, stack: str | None, options: CloudOptions, parameters: Mapping[str, str] | None) -> str:
    """Return why a stack could not be created or deleted in the order of the options; empty when it could."""
    with EmbeddedAws(address="127.0.0.1", port=0, machines=_NoMachines(), options=options) as aws:
        aws.deploy(assembly, stack, parameters=parameters)
        outcome = aws.wait(_SECONDS)
        if outcome.status != "CREATE_COMPLETE":
            failed = [entry for entry in outcome.events if entry.status == "CREATE_FAILED"]
            return "; ".join(f"{entry.logical_id} could not be created: {entry.reason}" for entry in failed[:1]) or (
                f"the stack is in {outcome.status} after {_SECONDS:g} s"
            )
        aws.place.client("cloudformation").delete_stack(StackName=aws.stack_name)
        outcome = aws.wait(_SECONDS)
        return "" if outcome.status == "DELETE_COMPLETE" else f"{outcome.status}: {outcome.reason}"
