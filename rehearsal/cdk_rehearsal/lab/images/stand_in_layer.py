"""
The layer of the nodes' image over the base root: stand-ins and what an image for this endpoint would carry.

Written once for a lab, read by all its nodes. User data and agent stay unmodified: they find AWS because the image's
machine-wide environment says where it is, as an image for a private cloud would.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from cdk_rehearsal.lab.images.base_root import DEBIAN_PYTHON
from cdk_rehearsal.lab.node_faults import DRIVER, GPU_STATE, Gpus
from cdk_rehearsal.lab.packages import source_line

_PROGRAMS = Path(__file__).parents[1] / "node_programs"
_LIBRARY = "usr/lib/lab"
AUTHORITIES = "etc/ssl/certs/ca-certificates.crt"
"""File of the certificates that programs trust."""
_PACKAGES = "usr/lib/python3/dist-packages"
"""Packages of the system's Python, which the environment of an image sees too."""
_NVIDIA_SMI = ("nvidia_smi", "sys.argv[1:]")
FI_INFO = "opt/amazon/efa/bin/fi_info"
NCCL_PLUGIN = "opt/amazon/ofi-nccl/lib/libnccl-net.so"
"""Paths of AWS's EFA installer."""
_LAUNCHER = f"""#!{DEBIAN_PYTHON} -I
import sys

sys.path.insert(0, "/usr/lib/lab")
from node_programs.{{module}} import main

sys.exit(main({{arguments}}))
"""


_SESSION_AGENT = f"""[Unit]
Description=amazon-ssm-agent
[Service]
ExecStart=/{_LIBRARY}/session-agent
Restart=always
"""


@dataclass(frozen=True)
class StandIn:
    """Something of the nodes that is not the real thing, what it replaces, and what it does instead."""

    name: str
    replaces: str
    behaviour: str


STAND_INS = (
    StandIn(
        "Debian 12",
        "the image's distribution",
        "systemd, cloud-init and what else the cluster uses of Ubuntu's cloud image, without timers and dhclient; "
        "framework, compilers, pip and MPI only in the layers that are listed here; of an image that the template "
        "names by its id nothing more is known",
    ),
    StandIn("network namespaces", "EC2 instances", "one kernel, one bridge; no hypervisor, no EBS, no security groups"),
    StandIn("metadata service", "IMDSv2", "serves the documented paths the cluster uses; no IMDSv1, no hop limit"),
    StandIn(
        "session agent",
        "the SSM agent",
        "registers and opens channels with the role's credentials; whoever starts a session enters the node by nsenter",
    ),
    StandIn("mount.nfs4", "the NFS client", "checks name, zone and options; binds a folder"),
    StandIn(
        "nvidia-smi",
        "the NVIDIA driver",
        "says what it is told to say of GPUs; with persistence mode, the load of the CPU that trains is theirs",
    ),
    StandIn(
        "fi_info, libnccl-net.so",
        "EFA and its software",
        "say that one EFA is there, so that nodes install nothing; all traffic goes over the bridge by TCP",
    ),
    StandIn(
        "own name in /etc/hosts", "the VPC's DNS", "a node resolves its own private DNS name; there is no resolver"
    ),
    StandIn("AWS_ENDPOINT_URL", "an image's environment", "systemd, PAM and sudo name the embedded AWS"),
)

PACKAGE_INDEX = StandIn(
    "package index",
    "the Python Package Index",
    "serves what this machine downloaded for the environment, and no other package; /etc/pip.conf names it",
)
"""Only where the cluster has an environment that is made of packages."""

DEBIAN_ARCHIVE = StandIn(
    "Debian archive",
    "the distribution's archive",
    "serves the compilers, pip, OpenMPI and packages of the app that this machine downloaded, and no other package; "
    "apt takes it unsigned",
)

DOWNLOAD = StandIn(
    "aws-cfn-bootstrap",
    "the download from CloudFormation's examples in S3",
    "a package for pip with cfn-signal alone; the machines know the host by /etc/hosts and trust its certificate",
)
"""Only where a template names the download."""

LUSTRE_CLIENT = StandIn(
    "mount.lustre",
    "the Lustre client and FSx for Lustre",
    "checks name and options, binds a folder; the linked buckets' objects are copied at launch, none is loaded lazily",
)
"""Only where the image has a Lustre client."""


@dataclass(frozen=True)
class Image:
    """
    The layer of all images over the base root.

    Attributes:
        endpoint_url: The embedded AWS, as nodes reach it.
        gpus_per_node: GPUs that `nvidia-smi` lists. Default: 0, which leaves the program, and EFA's software, out.
        has_lustre_client: Whether the image has `mount.lustre`. Default: it has not, like Ubuntu's.
        index_url: Package index in pip's configuration. Default: none.
        archive_url: Debian archive in apt's. Default: none.
        authorities: Certificates that the image trusts, PEM. Default: those of the base root.
        hosts: Name -> address of hosts that its machines know beside their own. Default: none.
    """

    endpoint_url: str
    gpus_per_node: int = 0
    has_lustre_client: bool = False
    index_url: str = ""
    archive_url: str = ""
    authorities: str = ""
    hosts: Mapping[str, str] = field(default_factory=dict)

    @property
    def stand_ins(self) -> tuple[StandIn, ...]:
        """Parts of nodes with the image that are not the real thing."""
        extras = (
            (self.archive_url, DEBIAN_ARCHIVE),
            (self.index_url, PACKAGE_INDEX),
            (self.has_lustre_client, LUSTRE_CLIENT),
            (self.authorities, DOWNLOAD),
        )
        return (*STAND_INS, *(extra for is_there, extra in extras if is_there))

    def write(self, folder: Path) -> None:
        """Write the layer to a folder, made when absent."""
        files = {f"{_LIBRARY}/node_programs/{path.name}": path.read_text() for path in sorted(_PROGRAMS.glob("*.py"))}
        launchers = {
            f"{_LIBRARY}/session-agent": ("session_agent", ""),
            "usr/sbin/mount.nfs4": ("mount_helper", '"mount.nfs4", sys.argv[1:]'),
        }
        if self.gpus_per_node:
            launchers |= {"usr/bin/nvidia-smi": _NVIDIA_SMI, FI_INFO: ("fi_info", "sys.argv[1:]")}
            files[NCCL_PLUGIN] = "A stand-in: no NCCL is there to load it.\n"
        if self.has_lustre_client:
            launchers["usr/sbin/mount.lustre"] = ("mount_helper", '"mount.lustre", sys.argv[1:]')
        files |= make_launchers(launchers)
        files[GPU_STATE] = json.dumps(asdict(Gpus(self.gpus_per_node)))
        environment = f'[Manager]\nDefaultEnvironment="AWS_ENDPOINT_URL={self.endpoint_url}"\n'
        files["etc/systemd/system.conf.d/10-image.conf"] = environment
        files["etc/environment"] = f"AWS_ENDPOINT_URL={self.endpoint_url}\n"
        files["etc/sudoers.d/lab"] = 'Defaults env_keep += "AWS_ENDPOINT_URL"\n'
        files["usr/lib/systemd/system/amazon-ssm-agent.service"] = _SESSION_AGENT
        files["etc/systemd/system/multi-user.target.d/10-image.conf"] = "[Unit]\nWants=amazon-ssm-agent.service\n"
        if self.index_url:
            # Plain HTTP to a host of the private network: pip wants to be told that it is meant.
            host = urlsplit(self.index_url).hostname
            files["etc/pip.conf"] = f"[global]\nindex-url = {self.index_url}\ntrusted-host = {host}\n"
        if self.authorities:
            files[AUTHORITIES] = self.authorities
        if self.archive_url:
            files["etc/apt/sources.list"] = source_line(self.archive_url)
        write_files(folder, files)

    def write_devices(self, folder: Path, *, driver: str = DRIVER, cuda: str = "") -> None:
        """
        Write what container engines bring from their machine into a container: the program of the GPUs' driver.

        With `cuda`, the software of the container has that version of CUDA. Default: it is for CPUs.
        """
        if self.gpus_per_node:
            files = {f"{_LIBRARY}/node_programs/{path.name}": path.read_text() for path in _PROGRAMS.glob("*.py")}
            files |= make_launchers({"usr/bin/nvidia-smi": _NVIDIA_SMI})
            files[GPU_STATE] = json.dumps(asdict(Gpus(self.gpus_per_node, driver=driver)))
            if cuda:
                files |= describe_cuda(cuda)
            write_files(folder, files)


def describe_cuda(version: str, packages: str = _PACKAGES) -> Mapping[str, str]:
    """
    Return the file by which a folder of packages has a version of CUDA: path -> text.

    Args:
        version: The version, with a package of NVIDIA's.
        packages: The folder. Default: that of the system's Python.
    """
    metadata = f"Metadata-Version: 2.1\nName: nvidia-cuda-runtime\nVersion: {version}\n"
    return {f"{packages}/nvidia_cuda_runtime-{version}.dist-info/METADATA": metadata}


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write files of an image: path -> text; all may read them and run scripts, whatever the umask is."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if text.startswith("#!") else 0o644)
    for parent in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        parent.chmod(0o755)


def make_launchers(launchers: Mapping[str, tuple[str, str]]) -> Mapping[str, str]:
    """Return path -> script that runs a module of the node's programs with arguments."""
    return {
        name: _LAUNCHER.format(module=module, arguments=arguments) for name, (module, arguments) in launchers.items()
    }
