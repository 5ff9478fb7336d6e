"""Network provider of NCCL on a node: EFA, or TCP with the reason."""

from dataclasses import dataclass
from pathlib import Path

from deeplearning_contract.names import STATE_DIRECTORY
from deeplearning_contract.setting_parts import HardwareSettings
from deeplearning_node.health.findings import Finding, last_line
from deeplearning_node.programs import ProgramError, Programs

NETWORK = "network"
EFA, TCP = "efa", "tcp"
FI_INFO = "/opt/amazon/efa/bin/fi_info"
"""Path that AWS's installer uses (EC2 user guide, "Get started with EFA and NCCL", efa-start-nccl)."""
FAULT_FILE = f"{STATE_DIRECTORY}/efa-fault"
"""Cause of a failed installation of the EFA software; absent when it succeeded or was not needed."""
PROVIDER_SECONDS = 10
LIBRARY_SECONDS = 3
REMEDY = "read the agent's log on the node, or deploy with network.efa=False to train over TCP on purpose"

_DEVICES = "sys/class/infiniband"
_PLUGIN = "libnccl-net"
_PLUGIN_FOLDERS = ("opt/amazon/ofi-nccl", "opt/aws-ofi-nccl")
"""aws-ofi-nccl of AWS's installer, and of older deep-learning images."""


@dataclass(frozen=True)
class Provider:
    """Network provider of NCCL's traffic between nodes."""

    name: str  # `efa` or `tcp`
    why: str  # The reason, in one line
    is_fault: bool = False  # Whether it is TCP where EFA is configured

    @property
    def detail(self) -> str:
        """Name and reason in one line."""
        return f"{self.name}: {self.why}"


def find_provider(programs: Programs, root: Path, hardware: HardwareSettings | None) -> Provider:
    """
    Find EFA in libfabric, and the plugin with which NCCL uses it.

    `fi_info -p efa -t FI_EP_RDM` lists a domain a device (EC2 user guide, efa-start-nccl). Fewer devices than the type
    has are reported but are no fault: types with several devices a card are untested. `hardware` is None for an unknown
    instance type.
    """
    if hardware is None or not hardware.efa_cards:
        name = hardware.instance_type if hardware else ""
        return Provider(TCP, f"{name or 'the instance type'} has no EFA here")
    try:
        count = count_devices(programs, root)
    except ProgramError as error:
        if error.is_late and (count := len(list((root / _DEVICES).glob("*")))):
            # A busy node is slow, which is no reason to evict it.
            return Provider(EFA, f"the kernel has {count} devices, fi_info did not respond in {PROVIDER_SECONDS} s")
        return _fail(root, _explain(error))
    if not count:
        return _fail(root, "libfabric lists no EFA")
    if hardware.gpu_count and not has_plugin(programs, root):
        return _fail(root, "NCCL has no plugin for EFA, aws-ofi-nccl is not installed")
    return Provider(EFA, f"libfabric lists {count} of {hardware.efa_cards} devices")


def check_network(programs: Programs, root: Path, hardware: HardwareSettings | None) -> Finding:
    """Return a fault for a node whose traffic does not use its EFA."""
    provider = find_provider(programs, root, hardware)
    if provider.is_fault:
        return Finding.fault(NETWORK, provider.detail, REMEDY)
    return Finding.fit(NETWORK, provider.detail)


def count_devices(programs: Programs, root: Path) -> int:
    """Return the number of EFA devices that libfabric lists; ProgramError without libfabric or device."""
    own = root / FI_INFO.lstrip("/")
    command = str(own) if own.exists() else "fi_info"
    output = programs.run([command, "-p", "efa", "-t", "FI_EP_RDM"], timeout_seconds=PROVIDER_SECONDS)
    return len({line.split(":", 1)[1].strip() for line in output.splitlines() if line.strip().startswith("domain:")})


def has_software(programs: Programs, root: Path) -> bool:
    """Return whether libfabric with EFA is installed."""
    return (root / FI_INFO.lstrip("/")).exists() or programs.has("fi_info")


def has_plugin(programs: Programs, root: Path) -> bool:
    """Return whether NCCL finds a network plugin: in AWS's folders, or among the system's libraries."""
    if any(next((root / folder).rglob(f"{_PLUGIN}*.so"), None) for folder in _PLUGIN_FOLDERS):
        return True
    try:
        return _PLUGIN in programs.run(["ldconfig", "-p"], timeout_seconds=LIBRARY_SECONDS)
    except ProgramError:
        return False


def _explain(error: ProgramError) -> str:
    if error.is_missing:
        return "libfabric with EFA is not installed, there is no fi_info"
    if error.is_late:
        return f"fi_info did not respond in {PROVIDER_SECONDS} s"
    return f"libfabric finds no EFA: {last_line(error.output) or error}"


def _fail(root: Path, why: str) -> Provider:
    try:
        recorded = last_line((root / FAULT_FILE.lstrip("/")).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        recorded = ""
    return Provider(TCP, f"{why}; {recorded}" if recorded else why, is_fault=True)
