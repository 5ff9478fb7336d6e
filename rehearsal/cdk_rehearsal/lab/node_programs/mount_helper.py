"""
Stands in for `mount.nfs4`, `mount.efs` and `mount.lustre`: checks the call, then binds the lab's folder.

The kernel of the lab need not know NFS or Lustre. Checked are the server's name (for EFS a file system that has a
mount target in the node's zone, for FSx one of the VPC), the options, the path. Locking and caching are not alike.

With `iam`, EFS asks what the instance's role may: without ClientMount it refuses, without ClientWrite files are only
read (EFS user guide, "Using IAM to control access to file systems").
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from .session_agent import AgentError, Caller

FILE_SYSTEMS = Path("/run/lab/file-systems")
TARGETS = FILE_SYSTEMS / "targets.json"
_SERVER = re.compile(r"(?P<id>fs-[0-9a-f]{8,17})\.efs\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?")
_NFS_FLAGS = frozenset(
    {"hard", "soft", "noresvport", "resvport", "_netdev", "nofail", "rw", "ro", "defaults", "noatime"}
)
_NFS_NUMBERS = frozenset({"rsize", "wsize", "timeo", "retrans", "retry", "actimeo"})
_VERSIONS = frozenset({"nfsvers=4.1", "vers=4.1"})
_EFS_FLAGS = frozenset({"tls", "iam", "_netdev", "nofail", "rw", "ro", "defaults", "noatime"})
_LUSTRE_SOURCE = re.compile(r"(?P<server>[^@:]+)@tcp[0-9]*:/(?P<name>[A-Za-z0-9]{1,8})(?P<path>(/[^/]+)*)")
_LUSTRE_FLAGS = frozenset(
    "flock noflock localflock user_xattr nouser_xattr relatime noatime defaults rw ro _netdev nofail".split()  # noqa: SIM905
)
_ENVIRONMENT = Path("/etc/environment")
"""Says where AWS is, whoever mounts."""
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_FAILED, _USAGE = 32, 1
FAULT = Path("/usr/lib/lab/mount-fault.json")
_LOOK_SECONDS = 0.2


class MountError(Exception):
    """The mount would be refused; the message is what the real helper would say."""


@dataclass(frozen=True)
class Mount:
    """A mount that may be made, of a path from the file system's root; the access point is empty for none."""

    file_system_id: str
    path: str
    access_point: str
    is_read_only: bool
    has_identity: bool = False
    """True if EFS knows the role of the client."""


def check_nfs(source: str, options: str, targets: Mapping[str, Any]) -> Mount:
    """Check a mount over NFS 4.1 of `<id>.efs.<region>.amazonaws.com:/<path>`, or of a mount target's address."""
    server, separator, path = source.partition(":")
    if not separator or not path.startswith("/"):
        raise MountError(f"mount.nfs4: remote share not in 'host:dir' format: {source}")
    given = [option for option in options.split(",") if option]
    for option in given:
        name, _, number = option.partition("=")
        if option not in _NFS_FLAGS | _VERSIONS and not (name in _NFS_NUMBERS and number.isdigit()):
            raise MountError(f"mount.nfs4: an incorrect mount option was specified: {option}")
    if not _VERSIONS & set(given):
        raise MountError("mount.nfs4: Protocol not supported; EFS wants nfsvers=4.1 among the options")
    return Mount(_find_file_system(server, targets), path, "", "ro" in given)


def check_efs(source: str, options: str, targets: Mapping[str, Any]) -> Mount:
    """Check a mount by efs-utils of `<id>` or `<id>:/<path>`."""
    file_system_id, _, path = source.partition(":")
    given = [option for option in options.split(",") if option]
    access_points = [option.partition("=")[2] for option in given if option.startswith("accesspoint=")]
    for option in given:
        if option not in _EFS_FLAGS and not option.startswith("accesspoint="):
            raise MountError(f"mount.efs stand-in: option {option} is not implemented")
    if (access_points or "iam" in given) and "tls" not in given:
        raise MountError('The "tls" option is required when mounting with "iam" or "accesspoint"')
    if file_system_id not in targets["addresses"]:
        raise MountError(f"Failed to resolve {file_system_id}: the file system has no mount target in this zone")
    if not access_points:
        return Mount(file_system_id, path or "/", "", "ro" in given, "iam" in given)
    known = targets["access_points"].get(access_points[0])
    if known is None or known["file_system_id"] != file_system_id:
        raise MountError(f"mount.nfs4: access denied by server: no access point {access_points[0]} of {file_system_id}")
    if path not in {"", "/"}:
        raise MountError(f"mount.efs stand-in: a path below an access point is not implemented, got {path}")
    return Mount(file_system_id, known["path"], access_points[0], "ro" in given, "iam" in given)


def check_lustre(source: str, options: str, targets: Mapping[str, Any]) -> Mount:
    """Check a mount of FSx for Lustre, `<DNS name>@tcp:/<mount name>`; its one server is reached from every zone."""
    match = _LUSTRE_SOURCE.fullmatch(source)
    if match is None:
        raise MountError(f"mount.lustre: {source} is not in the form <server>@tcp:/<mount name>")
    given = [option for option in options.split(",") if option]
    for option in given:
        if option not in _LUSTRE_FLAGS:
            raise MountError(f"mount.lustre: mount {source} failed: Invalid argument; unknown option {option}")
    by_name = {target["dns_name"]: (name, target["mount_name"]) for name, target in targets.get("lustre", {}).items()}
    if match["server"] not in by_name:
        raise MountError(f"mount.lustre: Can't parse NID '{match['server']}@tcp': the name does not resolve")
    identity, mount_name = by_name[match["server"]]
    if match["name"] != mount_name:
        raise MountError(
            f"mount.lustre: mount {source} failed: No such file or directory\n"
            "Is the MGS specification correct?\nIs the filesystem name correct?"
        )
    return Mount(identity, match["path"] or "/", "", "ro" in given)


def suffer(source: str, fault: Path = FAULT) -> None:
    """Apply the fault that the lab has written, if any: hang until it is over, or resolve no name."""
    while True:
        try:
            state = json.loads(fault.read_text())
        except FileNotFoundError:
            return
        if state["until"] is not None and time.time() >= state["until"]:
            return
        if state["trouble"] == "unresolvable":
            server = source.partition(":")[0]
            raise MountError(f"mount.nfs4: Failed to resolve server {server}: Name or service not known")
        time.sleep(_LOOK_SECONDS)


def authorize(mount: Mount, caller: "Caller | None" = None) -> Mount:
    """Return the mount as the instance's role may make it; MountError where it may not."""
    if not mount.has_identity:
        return mount
    asked = caller or Caller(_ENVIRONMENT.read_text().partition("AWS_ENDPOINT_URL=")[2].split()[0])
    names = {"FileSystemId": mount.file_system_id, "AccessPointId": mount.access_point}

    def may(action: str) -> bool:
        try:
            body = urlencode({"Action": action, **names})
            asked.call("elasticfilesystem", "POST", "/", body, headers=_FORM).read()
        except AgentError:
            return False
        return True

    if not may("ClientMount"):
        raise MountError("mount.nfs4: access denied by server while mounting 127.0.0.1:/")
    return mount if may("ClientWrite") else replace(mount, is_read_only=True)


def bind(mount: Mount, mount_point: str) -> None:
    """Bind the lab's folder to the mount point; MountError when the path does not exist or the kernel refused."""
    folder = FILE_SYSTEMS / mount.file_system_id / mount.path.lstrip("/")
    if mount.access_point and not folder.is_dir():
        # EFS makes it only with CreationInfo (EFS API, RootDirectory); the words are from aws/efs-utils#132.
        raise MountError("mount.nfs4: access denied by server while mounting 127.0.0.1:/")
    if not folder.is_dir():
        raise MountError(f"mount.nfs4: mounting {mount.file_system_id}:{mount.path} failed: No such file or directory")
    commands = [["--bind", str(folder), mount_point]]
    if mount.is_read_only:
        commands.append(["-o", "remount,bind,ro", mount_point])
    for arguments in commands:
        answer = subprocess.run(["mount", "-i", *arguments], capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            raise MountError(answer.stderr.strip())


def main(program: str, arguments: Sequence[str]) -> int:
    """Serve one call by mount(8), `SOURCE DIRECTORY [-sfnvw] [-o OPTIONS]`; return the status of mount."""
    words, options = _split(arguments)
    if len(words) != 2:  # noqa: PLR2004
        sys.stderr.write(f"{program}: usage: {program} SOURCE DIRECTORY [-o OPTIONS]\n")
        return _USAGE
    check = {"mount.efs": check_efs, "mount.lustre": check_lustre}.get(program, check_nfs)
    try:
        mount = check(words[0], options, json.loads(TARGETS.read_text()))
        suffer(words[0])
        bind(authorize(mount), words[1])
    except (MountError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return _FAILED
    return 0


def _split(arguments: Sequence[str]) -> tuple[list[str], str]:
    words, options, rest = [], "", list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "-o" and rest:
            options = rest.pop(0)
        elif not argument.startswith("-"):
            words.append(argument)
    return words, options


def _find_file_system(server: str, targets: Mapping[str, Any]) -> str:
    """Resolve a server's name as the VPC's DNS does: a name exists where a mount target does."""
    by_address = {address: file_system_id for file_system_id, address in targets["addresses"].items()}
    if server in by_address:
        found: str = by_address[server]
        return found
    match = _SERVER.fullmatch(server)
    if match is None or match["region"] != targets["region"] or match["id"] not in targets["addresses"]:
        raise MountError(f"mount.nfs4: Failed to resolve server {server}: Name or service not known")
    return match["id"]
