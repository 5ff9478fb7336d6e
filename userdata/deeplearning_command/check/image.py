"""Checks of a machine for an image: the programs and settings that the agent and users' jobs need."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deeplearning_command.check.contract import Check
from deeplearning_jobs.launchers import LAUNCHERS
from deeplearning_node.contract_variables import BASHRC_FILES
from deeplearning_node.health.network import has_software
from deeplearning_node.programs import ProgramError, Programs

LEAST_PYTHON = (3, 10)
VERSION_SECONDS = 60
PAM_FILES = ("sshd", "common-session", "common-auth", "system-auth", "password-auth", "postlogin")
AGENT_PROGRAMS = (
    "bash", "systemctl", "runuser", "ssh", "ssh-keygen", "ssh-keyscan", "mount", "mountpoint", "chown", "getent",
)  # fmt: skip
_SUDO_INCLUDE = re.compile(r"^\s*[@#]includedir\s+/etc/sudoers\.d\s*$", re.MULTILINE)
_USE_PAM = re.compile(r"^\s*usepam\s+(\w+)", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True)
class Tool:
    """Program that an image may have."""

    name: str
    programs: tuple[str, ...]  # One of them must be installed
    version: tuple[str, ...]  # Arguments to print the version of the first; empty to run nothing
    remedy: str


TOOLS = (
    Tool(
        "NFS client",
        ("mount.nfs4", "mount.efs"),
        (),
        "install nfs-common (Ubuntu), nfs-utils (Amazon Linux) or amazon-efs-utils; "
        "without one each node installs it at its start, and needs a package server for that",
    ),
    Tool("nvidia-smi", ("nvidia-smi",), ("-L",), "for GPU instance types install NVIDIA's driver; CPU types need none"),
    *(
        Tool(each.program, (each.program,), each.version, each.remedy)
        for each in (launcher.starter for launcher in LAUNCHERS.values())
        if each
    ),
    Tool("tar", ("tar",), (), "to unpack archives by hand install tar; staged data does not need it"),
    Tool("unzip", ("unzip",), (), "to unpack archives by hand install unzip; staged data does not need it"),
    Tool("docker", ("docker",), ("--version",), "for jobs in containers install docker, with nvidia-container-toolkit"),
)


def check_image(root: Path, programs: Programs, version: Sequence[int] = sys.version_info[:3]) -> list[Check]:
    """Check everything, and the agent's Python version; a missing requirement of only some jobs is no fault."""
    return [
        _check_python(version),
        _check_programs(programs),
        _check_sshd(root, programs),
        _check_pam(root),
        _check_sudo(root, programs),
        _check_bashrc(root),
        *(_check_tool(programs, tool) for tool in TOOLS),
        _check_efa(root, programs),
    ]


def _check_python(version: Sequence[int]) -> Check:
    text = ".".join(str(number) for number in version[:3])
    if tuple(version[:2]) >= LEAST_PYTHON:
        return Check("python", "ok", f"{sys.executable} is {text}")
    remedy = "install python3.10 or newer beside it, and name it in the cluster's machine image"
    return Check("python", "fault", f"python must be 3.10 or newer, got {text} as {sys.executable}", remedy)


def _check_programs(programs: Programs) -> Check:
    missing = [name for name in AGENT_PROGRAMS if not programs.has(name)]
    if missing:
        return Check("programs", "fault", f"missing: {', '.join(missing)}", "install the packages that contain them")
    return Check("programs", "ok", f"all {len(AGENT_PROGRAMS)} that the agent runs are installed")


def _check_sshd(root: Path, programs: Programs) -> Check:
    if not programs.has("sshd"):
        return Check("sshd", "fault", "missing: sshd", "install openssh-server")
    files = [*sorted((root / "etc/ssh/sshd_config.d").glob("*.conf")), root / "etc/ssh/sshd_config"]
    found = [match for path in files for match in _USE_PAM.findall(_read(path))]
    if not found or found[0].lower() != "yes":  # As in sshd: the first one counts, and the default is `no`.
        value = found[0] if found else "not set"
        return Check("sshd", "fault", f"UsePAM must be yes, got {value}", "set `UsePAM yes` in /etc/ssh/sshd_config")
    return Check("sshd", "ok", "it is installed and uses PAM")


def _check_pam(root: Path) -> Check:
    """Check for pam_env, without which `ssh host cmd` of a shell other than bash has no variables."""
    for name in PAM_FILES:
        lines = [line.split("#")[0] for line in _read(root / "etc/pam.d" / name).splitlines()]
        if any("pam_env.so" in line and "readenv=0" not in line for line in lines):
            return Check("/etc/environment", "ok", f"/etc/pam.d/{name} reads it")
    remedy = "add `session required pam_env.so` to /etc/pam.d/sshd"
    return Check("/etc/environment", "fault", "no file in /etc/pam.d reads it at a login", remedy)


def _check_sudo(root: Path, programs: Programs) -> Check:
    if not programs.has("sudo"):
        return Check("sudo", "fault", "missing: sudo", "install sudo")
    try:
        text = (root / "etc/sudoers").read_text(encoding="utf-8")
    except PermissionError:
        return Check("sudo", "absent", "only root may read /etc/sudoers", "run the check as root")
    except (OSError, ValueError) as error:
        return Check("sudo", "fault", str(error), "reinstall sudo")
    if _SUDO_INCLUDE.search(text):
        return Check("sudo", "ok", "/etc/sudoers reads /etc/sudoers.d")
    remedy = "add `@includedir /etc/sudoers.d` to /etc/sudoers with visudo"
    return Check("sudo", "fault", "/etc/sudoers does not read /etc/sudoers.d", remedy)


def _check_bashrc(root: Path) -> Check:
    found = [path for path in BASHRC_FILES if (root / path.lstrip("/")).is_file()]
    if found:
        return Check("bashrc", "ok", f"{found[0]} exists")
    remedy = f"create an empty {BASHRC_FILES[0]} (Debian, Ubuntu) or {BASHRC_FILES[1]} that bash reads"
    return Check("bashrc", "fault", f"neither {' nor '.join(BASHRC_FILES)} exists", remedy)


def _check_tool(programs: Programs, tool: Tool) -> Check:
    found = next((name for name in tool.programs if programs.has(name)), None)
    if found is None:
        return Check(tool.name, "absent", f"missing: {' or '.join(tool.programs)}", tool.remedy)
    if not tool.version:
        return Check(tool.name, "ok", f"{found} is installed")
    try:
        output = programs.run([found, *tool.version], timeout_seconds=VERSION_SECONDS)
    except ProgramError as error:
        return Check(tool.name, "fault", f"{error}: {_first_line(error.output)}", f"repair it; {tool.remedy}")
    return Check(tool.name, "ok", _first_line(output) or f"{found} is installed")


def _check_efa(root: Path, programs: Programs) -> Check:
    if has_software(programs, root):
        return Check("EFA", "ok", "libfabric with EFA is installed")
    remedy = (
        "for accelerated types with EFA install AWS's EFA software; "
        "without it each node installs it at its start, and needs access to AWS's download for that"
    )
    return Check("EFA", "absent", "missing: fi_info", remedy)


def _first_line(output: str) -> str:
    return next((line.strip() for line in output.splitlines() if line.strip()), "")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
