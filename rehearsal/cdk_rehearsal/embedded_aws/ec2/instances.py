"""Single instances: a stack launches them, the lab boots them, and their deletion terminates them."""

import threading
from collections.abc import Callable, Sequence

from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchFault, find_fault
from cdk_rehearsal.embedded_aws.base.observation import Observations
from cdk_rehearsal.embedded_aws.base.signals import Outcome
from cdk_rehearsal.embedded_aws.ec2.launcher import InstanceLauncher, LaunchOrder
from cdk_rehearsal.machine import Machine, MachineHost
from cdk_rehearsal.place import Place


class SingleInstances:
    """The instances that belong to no group and no cluster."""

    def __init__(
        self,
        *,
        place: Place,
        launcher: InstanceLauncher,
        machines: MachineHost,
        observations: Observations,
        faults: Sequence[LaunchFault],
    ) -> None:
        self._place = place
        self._launcher = launcher
        self._machines = machines
        self._observations = observations
        self._faults = tuple(faults)
        self._boots: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._running: set[str] = set()

    def launch(self, order: LaunchOrder) -> tuple[Machine, Callable[[], Outcome | None]]:
        """
        Launch an instance and begin to boot it; return it, and what tells the outcome once it runs or has ended.

        Raise LaunchError where EC2 refuses.
        """
        fault = find_fault(self._faults, tags=order.tags, group=order.name, ordinal=1)
        machine = self._launcher.launch(order, fault)
        if fault is not None:
            self._launcher.terminate(machine.instance_id)
            error = fault.to_error(instance_type=machine.instance_type, zone=machine.zone)
            ended = Outcome(
                f"Instance {machine.instance_id} failed to stabilize. Current state: shutting-down. Reason: {error}"
            )
            return machine, lambda: ended
        self._observations.report("scaling", machine.instance_id, f"launched for {order.name}", machine=machine)
        with self._lock:
            self._running.add(machine.instance_id)
        outcomes: list[Outcome] = []
        boot = threading.Thread(target=self._boot, args=[machine, outcomes], daemon=True)
        self._boots.append(boot)
        boot.start()
        return machine, lambda: outcomes[0] if outcomes else None

    def terminate(self, instance_id: str) -> None:
        """Terminate an instance, unless it is protected, and power its machine off."""
        for boot in self._boots:
            boot.join()
        self._launcher.terminate(instance_id)
        with self._lock:
            self._running.discard(instance_id)
        self._machines.power_off(instance_id)
        self._observations.report("scaling", instance_id, "terminated")

    def stop(self, instance_id: str) -> bool:
        """Stop an instance whose machine has ended; return whether it is one of these that runs."""
        with self._lock:
            is_running = instance_id in self._running
            self._running.discard(instance_id)
        if is_running:
            self._place.client("ec2").stop_instances(InstanceIds=[instance_id])
        return is_running

    def close(self) -> None:
        """Wait for what boots; machines are left to their host."""
        for boot in self._boots:
            boot.join()

    def _boot(self, machine: Machine, outcomes: list[Outcome]) -> None:
        try:
            self._machines.boot(machine)
        except Exception as error:  # noqa: BLE001 - the lab's own failure must not pass for a slow launch
            outcomes.append(Outcome(f"the machine did not start: {error}"))
            return
        self._observations.report("scaling", machine.instance_id, "running")
        outcomes.append(Outcome())
