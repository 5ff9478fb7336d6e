"""Runs one service: starts it, restarts it as its unit says, stops it with all that it started."""

import os
import pwd
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from .unit_file import UnitError, UnitFile, parse_environment_file, split_command

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
JOURNAL = Path("/var/log/journal")


class ServiceError(RuntimeError):
    """A service could not do what it was asked to do."""


class Service:
    """
    A service and the thread that watches it.

    Args:
        unit: Its unit file.
        default_environment: Returns the manager's `DefaultEnvironment`.
    """

    def __init__(self, unit: UnitFile, default_environment: Callable[[], Mapping[str, str]]) -> None:
        self.unit = unit
        self.state = "inactive"
        self.invocation = ""
        self._default_environment = default_environment
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = False
        self._lock = threading.RLock()
        self._ended = threading.Condition(self._lock)
        self._starts: list[float] = []

    def start(self) -> None:
        """
        Start the service; of a oneshot, wait for its end.

        Raises:
            ServiceError: It did not start, or a oneshot failed.
        """
        with self._lock:
            if self._process is not None or (self.state == "active" and self._remains()):
                return
            condition = self.unit.one("Unit", "ConditionPathExists", "")
            if condition and Path(condition.lstrip("!")).exists() == condition.startswith("!"):
                return
            self._wanted = True
            self._starts.clear()
            self._spawn()
            if self.unit.one("Service", "Type", "simple") == "oneshot":
                self._ended.wait_for(lambda: self._process is None)
                if self.state == "failed":
                    raise ServiceError(f"Job for {self.unit.name} failed because the control process exited with error")

    def stop(self) -> None:
        """Stop the service and everything that it started; return when it has ended."""
        with self._lock:
            self._wanted = False
            process = self._process
            if process is None:
                self.state = "inactive"
                self._ended.notify_all()
                return
            self._signal(process, signal.SIGTERM)
            if not self._ended.wait_for(
                lambda: self._process is not process, self.unit.seconds("Service", "TimeoutStopSec", 90)
            ):
                self._signal(process, signal.SIGKILL)
                self._ended.wait_for(lambda: self._process is not process)
            self.state = "inactive"

    def reload(self) -> None:
        """
        Run the unit's `ExecReload=`.

        Raises:
            ServiceError: The service does not run, has none, or it failed.
        """
        commands = self.unit.all("Service", "ExecReload")
        process = self._process
        if process is None or not commands:
            raise ServiceError(f"Failed to reload {self.unit.name}: it does not run, or has no ExecReload=")
        for command in commands:
            self._run_control(command, {"MAINPID": str(process.pid)})

    def _remains(self) -> bool:
        return self.unit.one("Service", "RemainAfterExit", "no") in {"yes", "true"}

    def _spawn(self) -> None:
        now = time.monotonic()
        interval = self.unit.seconds("Unit", "StartLimitIntervalSec", 10)
        self._starts = [moment for moment in self._starts if now - moment < interval] + [now]
        if interval and len(self._starts) > int(self.unit.one("Unit", "StartLimitBurst", "5")):
            self.state = "failed"
            raise ServiceError(f"{self.unit.name}: start request repeated too quickly (start-limit-hit)")
        self.invocation = uuid.uuid4().hex
        self._make_runtime_directory()
        for command in self.unit.all("Service", "ExecStartPre"):
            self._run_control(command, {})
        environment = self._environment()
        commands = self.unit.all("Service", "ExecStart")
        if len(commands) != 1:
            raise UnitError(f"{self.unit.name}: several ExecStart= are not implemented by the systemctl stand-in")
        _, words = split_command(commands[0], environment)
        with self._output() as output:
            self._process = self._popen(words, environment, output)
        self.state = "active"
        threading.Thread(target=self._watch, args=(self._process,), daemon=True).start()

    def _popen(self, words: list[str], environment: Mapping[str, str], output: IO[bytes]) -> "subprocess.Popen[bytes]":
        user = self.unit.one("Service", "User", "root")
        entry = pwd.getpwnam(user)
        directory = self.unit.one("Service", "WorkingDirectory", "/").lstrip("-")
        return subprocess.Popen(
            words,
            env=dict(environment),
            cwd=entry.pw_dir if directory == "~" else directory,
            user=entry.pw_uid,
            group=entry.pw_gid,
            extra_groups=os.getgrouplist(user, entry.pw_gid),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _watch(self, process: "subprocess.Popen[bytes]") -> None:
        status = process.wait()
        with self._lock:
            clean = status in {0, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, -signal.SIGPIPE}
            self._signal(process, signal.SIGKILL)
            self._process = None
            self.state = "failed" if not clean else "active" if self._remains() else "inactive"
            self._ended.notify_all()
            prevented = str(status) in self.unit.one("Service", "RestartPreventExitStatus", "").split()
            restart = self.unit.one("Service", "Restart", "no")
            if not self._wanted or prevented or restart == "no" or (restart == "on-failure" and clean):
                return
            self.state = "activating"
            # A stop, or another start, that comes during the pause ends it.
            mine = self.invocation
            if self._ended.wait_for(
                lambda: not self._wanted or self.invocation != mine, self.unit.seconds("Service", "RestartSec", 0.1)
            ):
                return
            try:
                self._spawn()
            except (ServiceError, UnitError, OSError, KeyError) as error:
                self.state = "failed"
                with self._output() as output:
                    output.write(f"{error}\n".encode())

    def _environment(self) -> dict[str, str]:
        variables: dict[str, str] = {"PATH": PATH, "LANG": "C.UTF-8", "INVOCATION_ID": self.invocation} | dict(
            self._default_environment()
        )
        if self.unit.one("Service", "User", ""):
            entry = pwd.getpwnam(self.unit.one("Service", "User", ""))
            variables |= {
                "HOME": entry.pw_dir,
                "USER": entry.pw_name,
                "LOGNAME": entry.pw_name,
                "SHELL": entry.pw_shell,
            }
        variables |= self.unit.environment()
        for name in self.unit.all("Service", "EnvironmentFile"):
            path = Path(name.lstrip("-"))
            if path.exists() or not name.startswith("-"):
                variables |= parse_environment_file(path.read_text())
        return variables

    def _run_control(self, command: str, more: Mapping[str, str]) -> None:
        environment = self._environment() | dict(more)
        forgiven, words = split_command(command, environment)
        with self._output() as output:
            status = subprocess.run(words, env=environment, stdout=output, stderr=output, check=False).returncode
        if status and not forgiven:
            self.state = "failed" if self._process is None else self.state
            raise ServiceError(f"Job for {self.unit.name} failed: {words[0]} exited with status {status}")

    def _signal(self, process: "subprocess.Popen[bytes]", number: int) -> None:
        """Signal the main process or, as the cgroup would, everything that the service started."""
        if self.unit.one("Service", "KillMode", "control-group") == "process":
            if process.poll() is None:
                process.send_signal(number)
            return
        for pid in find_members(self.invocation):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _make_runtime_directory(self) -> None:
        for name in self.unit.one("Service", "RuntimeDirectory", "").split():
            mode = int(self.unit.one("Service", "RuntimeDirectoryMode", "0755"), 8)
            Path("/run", name).mkdir(mode=mode, parents=True, exist_ok=True)

    def _output(self) -> IO[bytes]:
        target = self.unit.one("Service", "StandardOutput", "journal")
        kind, _, path = target.partition(":")
        if kind not in {"append", "journal", "null"}:
            raise UnitError(f"{self.unit.name}: StandardOutput={target} is not implemented by the systemctl stand-in")
        JOURNAL.mkdir(exist_ok=True)
        name = {"append": path, "null": "/dev/null"}.get(kind, str(JOURNAL / f"{self.unit.name}.log"))
        return Path(name).open("ab", buffering=0)


def find_members(invocation: str) -> list[int]:
    """
    Find the processes of one start of a service.

    There are no cgroups in the lab's nodes: members are those that carry its `INVOCATION_ID`, which children inherit.
    """
    needle = f"INVOCATION_ID={invocation}".encode()
    members = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                found = needle in (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if found:
                members.append(int(folder.name))
    return members
