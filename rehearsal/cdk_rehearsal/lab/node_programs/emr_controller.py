"""
Stands in for EMR's instance controller: runs bootstrap actions, and on a primary steps, as EMR orders them.

Its place is EMR's: bootstrap actions in /emr/instance-controller/lib/bootstrap-actions/<n>, their logs in
/mnt/var/log/bootstrap-actions/<n>, those of steps in /mnt/var/log/hadoop/steps/<id>. All logs go to S3, compressed,
with the rights of the instance's role (EMR management guide, "View log files"). A step's `syslog` is that of its Hadoop
job: the commands of steps here run none.

No disk is encrypted, but the key for it is used as on EMR: a node requests a data key when it launches, keeps the
encrypted copy on its boot volume, and has that decrypted after a reboot (KMS developer guide, "How Amazon EMR uses AWS
KMS"). A node that may not is lost.
"""

import grp
import gzip
import http.client
import json
import os
import pwd
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from .session_agent import AgentError, Caller

CHANNEL = Path("/etc/emr-instance-controller")
USER = "hadoop"
_ANSWER_SECONDS, _PAUSE_SECONDS = 60, 0.5
_COULD_NOT_RUN = 126
_COMMAND_RUNNER = "command-runner.jar"
_HADOOP = "/usr/lib/lab/hadoop"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BUSY_FILE = "emr/metricscollector/isbusy"
_DATA_KEY = "var/lib/emr-instance-controller/data-key.json"
_STREAMS = ("stdout", "stderr", "controller")
_REPEATED = (OSError, http.client.HTTPException, ValueError)
"""Errors of a call to EMR that a later call may not have."""


class Controller:
    """A node's controller; `root` is the node's root folder, `user` who runs actions and steps."""

    def __init__(self, url: str, root: Path = Path("/"), user: "str | None" = USER) -> None:
        """Read nothing yet."""
        self._url = urlsplit(url)
        self._root = root
        self._user = user
        self._caller = Caller(f"{self._url.scheme}://{self._url.netloc}")
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def serve(self) -> int:
        """Carry orders out until EMR has none any more."""
        kept = self._root / _DATA_KEY
        if kept.exists() and not self.use_key("Decrypt", json.loads(kept.read_text())):
            self.report(event="disks-locked")
            return 0
        self.report(event="ready")
        while True:
            try:
                orders = self.ask("orders")
            except AgentError:  # the channel is closed: the instance has ended
                return 0
            for order in orders:
                if order["do"] == "stop":
                    return 0
                self.carry_out(order)

    def carry_out(self, order: Mapping[str, Any]) -> None:
        """Carry out one order; what may take long goes on while others come."""
        if order["do"] == "cancel":
            self._cancel(order["id"], by_force=order["by_force"])
        elif order["do"] == "hosts":
            self._write_hosts(order["hosts"])
        elif order["do"] == "measure":
            self._measure()
        else:
            work = {"bootstrap": self._bootstrap, "step": self._run_step}[order["do"]]
            threading.Thread(target=work, args=[order], daemon=True).start()

    def ask(self, verb: str, body: str = "") -> Any:
        """Return EMR's answer, for as long as it takes; AgentError when the channel is closed."""
        while True:
            with suppress(*_REPEATED):
                connection = http.client.HTTPConnection(self._url.netloc, timeout=_ANSWER_SECONDS)
                connection.request("POST", f"{self._url.path}/{verb}", body=body)
                answer = connection.getresponse()
                if answer.status == http.client.NOT_FOUND:
                    raise AgentError("the channel is closed")
                return json.loads(answer.read())
            time.sleep(_PAUSE_SECONDS)

    def report(self, **report: Any) -> None:
        """Report what came of an order."""
        self.ask("report", json.dumps(report))

    def use_key(self, action: str, request: Mapping[str, str]) -> "Mapping[str, str] | None":
        """Return what KMS answers to a request with the instance's role; None where it refuses."""
        headers = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": f"TrentService.{action}"}
        try:
            while True:
                with suppress(*_REPEATED):
                    answer = self._caller.call("kms", "POST", "/", json.dumps(request), headers=headers)
                    return dict(json.loads(answer.read()))
                time.sleep(_PAUSE_SECONDS)
        except AgentError:
            return None

    def _unlock_disks(self, key: str) -> bool:
        """Request a data key, and keep its encrypted copy; return whether KMS gave one."""
        answer = self.use_key("GenerateDataKey", {"KeyId": key, "KeySpec": "AES_256"})
        if answer is not None:
            kept = {"KeyId": key, "CiphertextBlob": answer["CiphertextBlob"]}
            (self._make(str(Path(_DATA_KEY).parent)) / Path(_DATA_KEY).name).write_text(json.dumps(kept))
        return answer is not None

    def _bootstrap(self, order: Mapping[str, Any]) -> None:
        if order["disk_key"] and not self._unlock_disks(order["disk_key"]):
            self.report(event="disks-locked")
            return
        self._make(str(Path(_BUSY_FILE).parent))
        info = self._make("mnt/var/lib/info")
        for name, content in order["info"].items():
            (info / name).write_text(json.dumps(content, indent=2) + "\n")
        for number, action in enumerate(order["actions"], 1):
            folder = self._make(f"emr/instance-controller/lib/bootstrap-actions/{number}")
            logs = self._make(f"mnt/var/log/bootstrap-actions/{number}")
            try:
                program = self.fetch(action["path"], folder)
            except (AgentError, *_REPEATED) as error:
                _note(logs, f"ERROR Fetching {action['path']} failed: {error}")
                code, cause = _COULD_NOT_RUN, "download"
            else:
                code, cause = self._run([program, *action["arguments"]], folder, logs, f"action {number}"), "code"
            self._upload(logs, f"{order['logs']}bootstrap-actions/{number}/" if order["logs"] else "", order)
            if code != 0:
                self.report(event="bootstrap-failed", action=number, cause=cause, **_read_last_line(logs))
                return
        # As on AWS, Hadoop comes after the bootstrap actions.
        shutil.copy(self._root / _HADOOP.lstrip("/") / "yarn", self._make("usr/bin") / "yarn")
        self.report(event="bootstrapped")

    def _run_step(self, order: Mapping[str, Any]) -> None:
        identity = order["id"]
        logs = self._make(f"mnt/var/log/hadoop/steps/{identity}")
        folder = self._make(f"mnt/var/lib/hadoop/steps/{identity}")
        command = list(order["arguments"])
        try:
            if not order["jar"].endswith(_COMMAND_RUNNER):
                command[0] = self.fetch(command[0], folder)
        except (AgentError, *_REPEATED) as error:
            _note(logs, f"ERROR Fetching {command[0]} failed: {error}")
            code = _COULD_NOT_RUN
        else:
            code = self._run(command, folder, logs, identity)
        self._upload(logs, f"{order['logs']}{identity}/" if order["logs"] else "", order)
        self.report(event="step", id=identity, code=code, **(_read_last_line(logs) if code else {}))

    def _cancel(self, identity: str, *, by_force: bool) -> None:
        """Send SIGTERM to a step's process, or SIGKILL to it and all its descendants."""
        process = self._running.get(identity)
        if process is None or process.poll() is not None:
            return
        if not by_force:
            process.send_signal(signal.SIGTERM)
            return
        for pid in [process.pid, *list_descendants(process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _write_hosts(self, hosts: Mapping[str, str]) -> None:
        """Let the names of the cluster's nodes resolve, as the VPC's DNS does for all."""
        path = self._root / "etc/hosts"
        known = path.read_text() if path.exists() else ""
        new = [f"{address} {name}\n" for name, address in hosts.items() if f" {name}" not in known]
        with path.open("a") as file:
            file.writelines(new)

    def _measure(self) -> None:
        """Report how full the disk is, and the age of the file by which a program outside of YARN shows activity."""
        disk = os.statvfs(self._root / "mnt")
        busy = self._root / _BUSY_FILE
        self.report(
            event="measured",
            disk_percent=round(100 - 100 * disk.f_bavail / max(disk.f_blocks, 1)),
            busy_seconds=max(0.0, time.time() - busy.stat().st_mtime) if busy.exists() else None,
        )

    def fetch(self, path: str, folder: Path) -> str:
        """Return the path of a program: one of this node, or of S3, which is downloaded with the instance's role."""
        if not path.startswith("s3://"):
            return path.removeprefix("file:")
        bucket, _, key = path.removeprefix("s3://").partition("/")
        content = self._caller.call("s3", "GET", f"/{bucket}/{quote(key)}").read()
        target = folder / key.rpartition("/")[2]
        target.write_bytes(content)
        target.chmod(0o755)
        return str(target)

    def _run(self, command: Sequence[str], folder: Path, logs: Path, name: str) -> int:
        """Run a command as the user in a folder; return its status, below 0 for a signal."""
        _note(logs, f"INFO startExec '{' '.join(command)}'")
        account: dict[str, Any] = {}
        if self._user is not None:
            account = {"user": self._user, "group": self._user, "extra_groups": _list_groups(self._user)}
            shutil.chown(folder, self._user, self._user)
        with (logs / "stdout").open("wb") as out, (logs / "stderr").open("wb") as errors:
            try:
                process = subprocess.Popen(
                    command,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=errors,
                    env=make_environment(self._user),
                    start_new_session=True,
                    **account,
                )
            except OSError as error:
                _note(logs, f"ERROR {error}")
                return _COULD_NOT_RUN
            self._running[name] = process
            code = process.wait()
        del self._running[name]
        _note(logs, f"INFO waitProcessCompletion ended with exit code {code}")
        return code

    def _upload(self, logs: Path, uri: str, order: Mapping[str, Any]) -> None:
        """Upload the logs of an action or step; report one that S3 refuses, of which AWS would not inform anybody."""
        if not uri:
            return
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        headers = {}
        if order["log_key"]:
            headers = {
                "x-amz-server-side-encryption": "aws:kms",
                "x-amz-server-side-encryption-aws-kms-key-id": order["log_key"],
            }
        for name in _STREAMS:
            if (logs / name).exists():
                body, target = gzip.compress((logs / name).read_bytes()), f"/{bucket}/{quote(prefix)}{name}.gz"
                if refusal := self._put(target, body, headers):
                    _note(logs, f"ERROR Uploading {target} failed: {refusal}")
                    self.report(event="log-lost", target=target, error=refusal)

    def _put(self, target: str, body: bytes, headers: Mapping[str, str]) -> str:
        """Write an object; return why S3 refuses it, empty where it does not."""
        try:
            while True:
                with suppress(*_REPEATED):
                    self._caller.call("s3", "PUT", target, body, headers=headers).read()
                    return ""
                time.sleep(_PAUSE_SECONDS)
        except AgentError as error:
            return str(error)

    def _make(self, path: str) -> Path:
        folder = self._root / path
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def main() -> int:
    """Serve the channel that user data has named."""
    return Controller(CHANNEL.read_text().strip()).serve()


def make_environment(user: "str | None") -> dict[str, str]:
    """Return the environment of actions and steps; the image's own says where AWS is."""
    names = {"HOME": f"/home/{user}", "USER": user, "LOGNAME": user} if user else {}
    kept = {"AWS_ENDPOINT_URL": os.environ.get("AWS_ENDPOINT_URL", "")}
    return {"PATH": _PATH, "LANG": "C.UTF-8", "SHELL": "/bin/bash", **kept, **names}


def list_descendants(pid: int) -> "list[int]":
    """Return the process ids of all children of a process and of theirs; those that another one has adopted are not."""
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return children + [below for child in children for below in list_descendants(child)]


def _list_groups(user: str) -> "list[int]":
    return os.getgrouplist(user, grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_gid)


def _read_last_line(logs: Path) -> "dict[str, str]":
    """Return the last line of standard error for a report, if there is one."""
    path = logs / "stderr"
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return {"last_line": lines[-1]} if lines else {}


def _note(logs: Path, text: str) -> None:
    with (logs / "controller").open("a") as file:
        file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime())}.000Z {text}\n")
