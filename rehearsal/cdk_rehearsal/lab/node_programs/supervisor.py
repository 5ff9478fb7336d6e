"""
The node's service manager: stands in for systemd.

Boots the node (cloud-init, mounts, enabled units, user data) and serves `systemctl` on a socket.
"""

import json
import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from .service import PATH, ServiceError
from .session_agent import start_agent
from .unit_file import UnitError
from .units import Units

CONTROL_SOCKET = "/run/systemd/private"
_READING = frozenset({"is-active", "is-enabled", "status"})
_SYMBOLS = {"active": 0, "activating": 3, "inactive": 3, "failed": 3}


def main() -> int:
    """Boot the node, then serve for as long as it lives."""
    Path("/run/systemd/system").mkdir(parents=True, exist_ok=True)  # this is how programs see that systemd runs
    units = Units()
    _run_cloud_init(units, "init")
    # As local-fs.target and remote-fs.target do with /etc/fstab; what cannot be mounted does not end the boot.
    subprocess.run(["mount", "--all"], check=False)
    server = _listen()
    units.start_enabled()
    threading.Thread(target=_run_cloud_init, args=(units, "final"), daemon=True).start()
    start_agent(units.default_environment)
    while True:
        connection, _ = server.accept()
        threading.Thread(target=_answer, args=(connection, units), daemon=True).start()


def answer(units: Units, request: dict[str, Any], *, is_root: bool) -> tuple[int, str]:
    """
    Do what `systemctl` was asked to do.

    Args:
        units: The node's units.
        request: `verb`, `units` and `options`.
        is_root: Whether root asks; others may only read.

    Returns:
        Exit status and what to print.
    """
    verb, names, options = request["verb"], request["units"], set(request["options"])
    if verb not in _READING and not is_root:
        return 1, f"Failed to {verb}: Access denied"
    try:
        if verb == "daemon-reload":
            units.reload()
        elif verb == "daemon-reexec":
            units.reexecute()
        else:
            answers = [_act(units, verb, name, options) for name in names]
            return max(status for status, _ in answers), "\n".join(text for _, text in answers if text)
    except (ServiceError, UnitError, OSError, KeyError) as error:
        return (5 if "not found" in str(error) else 1), f"Failed to {verb}: {error}"
    return 0, ""


def _act(units: Units, verb: str, name: str, options: set[str]) -> tuple[int, str]:
    if verb in _READING:
        return _read(units, verb, name)
    if verb in {"enable", "disable"}:
        getattr(units, verb)(name)
        if "--now" not in options:
            return 0, ""
        verb = "start" if verb == "enable" else "stop"
    service = units.get(name)
    if verb in {"stop", "restart"} or (verb == "try-restart" and service.state == "active"):
        service.stop()
    if verb == "reload" or (verb == "reload-or-restart" and service.state == "active"):
        service.reload()
        return 0, ""
    if verb == "start" and "--no-block" in options:
        threading.Thread(target=service.start, daemon=True).start()
    elif verb in {"start", "restart", "try-restart", "reload-or-restart"}:
        service.start()
    return 0, ""


def _read(units: Units, verb: str, name: str) -> tuple[int, str]:
    if verb == "is-enabled":
        enabled = units.is_enabled(name)
        return (0, "enabled") if enabled else (1, "disabled")
    try:
        service = units.get(name)
    except ServiceError as error:
        return (4, str(error)) if verb == "status" else (4, "inactive")
    text = service.state
    if verb == "status":
        text = f"{service.unit.name} - {service.unit.one('Unit', 'Description', '')}\n     Active: {service.state}"
    return _SYMBOLS[service.state], text


def _listen() -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(CONTROL_SOCKET)
    Path(CONTROL_SOCKET).chmod(0o666)  # who asks is seen from the socket; others than root may only read
    server.listen(64)
    return server


def _answer(connection: socket.socket, units: Units) -> None:
    with connection, connection.makefile("rw") as stream:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, _ = struct.unpack("3i", credentials)
        status, text = answer(units, json.loads(stream.readline()), is_root=uid == 0)
        try:
            stream.write(json.dumps({"status": status, "text": text}) + "\n")
            stream.flush()
        except BrokenPipeError:
            return  # the asker ended first, as one does that restarts its own service


def _run_cloud_init(units: Units, stage: str) -> None:
    """Run a stage of cloud-init in the environment that systemd gives to a service without `User=`: no HOME."""
    environment = {"PATH": PATH, "LANG": "C.UTF-8"} | dict(units.default_environment)
    command = [sys.executable, "-I", "/usr/lib/lab/cloud-init", stage]
    with Path("/var/log/cloud-init.log").open("ab") as log:
        subprocess.run(
            command,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            umask=0o022,
            check=False,
        )


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
