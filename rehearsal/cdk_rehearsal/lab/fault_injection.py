"""Faults that a lab injects into one machine while it runs."""

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.lab.metadata_service import MetadataServer
from cdk_rehearsal.lab.node import Node
from cdk_rehearsal.lab.node_faults import (
    Gpus,
    MetadataFault,
    MountFault,
    MountTrouble,
    write_gpus,
    write_mount_fault,
)

INTERRUPTION_SECONDS = 120.0
"""EC2 warns of a spot interruption two minutes ahead."""


@dataclass
class RunningNode:
    """A machine that is on, or between being off and on."""

    node: Node
    metadata: MetadataServer
    lock: threading.Lock = field(default_factory=threading.Lock)


class FaultInjection(ABC):
    """What a lab can do to a machine. Every method raises RehearsalError when there is no such machine."""

    @abstractmethod
    def find(self, instance_id: str) -> RunningNode:
        """Return a machine."""

    def announce_interruption(self, instance_id: str, seconds: float = INTERRUPTION_SECONDS) -> None:
        """
        Let the metadata service say that EC2 is about to terminate the instance; nothing else happens to it.

        Args:
            instance_id: Which machine.
            seconds: How long from now on. Default: two minutes.
        """
        self.find(instance_id).metadata.session.announce_interruption(seconds)

    def announce_rebalance(self, instance_id: str) -> None:
        """Let the metadata service recommend a rebalance: an interruption has become more likely."""
        self.find(instance_id).metadata.session.announce_rebalance()

    def clear_announcements(self, instance_id: str) -> None:
        """Let the metadata service have nothing to announce."""
        self.find(instance_id).metadata.session.clear_announcements()

    def set_metadata_fault(self, instance_id: str, fault: MetadataFault | None) -> None:
        """Let the metadata service be slow, or refuse; None mends it."""
        self.find(instance_id).metadata.session.fault = fault or MetadataFault()

    def set_gpus(
        self,
        instance_id: str,
        count: int,
        *,
        ecc_errors: int = 0,
        has_pending_pages: bool = False,
        has_row_failure: bool = False,
        answer_seconds: float = 0.0,
    ) -> None:
        """
        Let `nvidia-smi` see other GPUs from now on; the troubles are those of GPU 0.

        Args:
            instance_id: Which machine, of a lab whose nodes have GPUs.
            count: How many there are.
            ecc_errors: Uncorrected ECC errors.
            has_pending_pages: Whether a page waits for a reboot to be retired.
            has_row_failure: Whether a row could not be remapped.
            answer_seconds: How much later it answers.
        """
        gpus = Gpus(count, ecc_errors, has_pending_pages, has_row_failure, answer_seconds)
        write_gpus(self.find(instance_id).node.root, gpus)

    def break_mounts(self, instance_id: str, trouble: MountTrouble, seconds: float | None = None) -> None:
        """
        Let each mount of a file system that begins from now on hang, or not resolve its server.

        Args:
            instance_id: Which machine.
            trouble: `hang` or `unresolvable`.
            seconds: For how long. Default: until `mend_mounts`.
        """
        fault = MountFault(trouble) if seconds is None else MountFault(trouble, seconds)
        write_mount_fault(self.find(instance_id).node.root, fault)

    def mend_mounts(self, instance_id: str) -> None:
        """Let mounts succeed again; those that hang go on."""
        write_mount_fault(self.find(instance_id).node.root, None)

    def fill_disk(self, instance_id: str, free_bytes: int = 0) -> None:
        """
        Let the machine's disk be full, but for a rest.

        Args:
            instance_id: Which machine.
            free_bytes: The rest. Default: nothing is left.
        """
        self.find(instance_id).node.disk.fill(free_bytes)

    def free_disk(self, instance_id: str) -> None:
        """Let the machine's disk have room again."""
        self.find(instance_id).node.disk.free()

    def stop_sshd(self, instance_id: str) -> None:
        """Stop the SSH server; nobody can log in until it is started again."""
        self._control_sshd(instance_id, "stop")

    def start_sshd(self, instance_id: str) -> None:
        """Start the SSH server again."""
        self._control_sshd(instance_id, "start")

    def _control_sshd(self, instance_id: str, verb: str) -> None:
        node = self.find(instance_id).node
        answer = node.run(["systemctl", verb, "ssh"], user=None, login_shell=False, timeout=60)
        if answer.returncode != 0:
            raise RehearsalError(f"{instance_id}: systemctl {verb} ssh failed: {answer.stderr.strip()}")
