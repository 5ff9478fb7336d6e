"""A cluster that runs jobs on this machine: nodes are folders, `ssh` is a shell, and the processes are real."""

import contextlib
import getpass
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import botocore
import pytest

from deeplearning_contract.membership import Member
from deeplearning_contract.setting_parts import HardwareSettings, JobNeeds
from deeplearning_node.node_facts import NodeFacts
from tests.real_time import GENEROUS_SECONDS, wait_until
from tests.unit import job_node

ROOT = Path(__file__).parents[2]
USERDATA, CONTRACT = ROOT / "userdata", ROOT / "contract"
PACKAGES = Path(botocore.__file__).parents[1]
CPU = HardwareSettings("c6i.4xlarge", 0, 1, 0)
COMMAND = "/usr/local/bin/deeplearning"
PROGRAMS = {
    # As OpenSSH: the first word without a dash is the host, the rest is for its shell; 255 when nobody answers.
    "ssh": """
        while :; do case "$1" in
            -F|-o|-i|-l|-p) shift 2 ;; --) shift; break ;; -*) shift ;; *) break ;;
        esac; done
        host=$1; shift
        [ "$1" != -- ] || shift
        address=$(awk -v host="$host" '$1 == host || $2 == host { print $1 }' "$LAB_FOLDER/hosts")
        [ -e "$LAB_FOLDER/$address/silent" ] && { echo "ssh: connect to host $host port 22: timed out" >&2; exit 255; }
        echo "$*" | sed -n 's/.*bin.deeplearning \\([a-z-]*\\).*/\\1/p' >> "$LAB_FOLDER/$address/asked"
        text=$(printf '%s\\n' "$*" | sed "s|@COMMAND@|$LAB_FOLDER/$address/deeplearning|g")
        cd / && LAB="$LAB_FOLDER@$address" exec sh -c "$text"
        """.replace("@COMMAND@", COMMAND),
    "ip": 'echo "2: ens5    inet ${LAB##*@}/24 brd 10.0.0.255 scope global ens5"',
    # As horovodrun --gloo: a rank a slot over ssh, the first failure ends all, its own status is 1.
    "horovodrun": """
        while [ "$1" != --network-interfaces ]; do
            case "$1" in -np) np=$2 ;; --hostfile) file=$2 ;; esac; shift
        done; shift 2
        command=; for word; do command="$command '$word'"; done
        rank=0; folder=$(mktemp -d "$LAB_FOLDER/horovod-XXXXXX")
        for host in $(sed 's/ slots=/ /' "$file" |
                while read -r name slots; do for slot in $(seq "$slots"); do echo "$name"; done; done); do
            { ssh "$host" env DEEPLEARNING_JOB="$DEEPLEARNING_JOB" HOROVOD_RANK=$rank HOROVOD_SIZE=$np "$command"
              echo "$rank $?" > "$folder/$rank.new"; mv "$folder/$rank.new" "$folder/$rank.ended"; } &
            rank=$((rank + 1))
        done
        while :; do
            set -- "$folder"/*.ended
            for file; do
                [ -e "$file" ] || continue
                read -r rank status < "$file"
                [ "$status" = 0 ] && continue
                printf 'Process name: %s\\nExit code: %s\\n' "$rank" "$status"
                exit 1
            done
            [ -e "$1" ] && [ $# -ge "$np" ] && exit 0
            sleep 0.1
        done
        """,
}

COMMAND_TEXT = """#!/bin/sh
case "$1 $2" in "node-facts "*|"stop --here") exec "{python}" -S -E "{client}" "{socket}" {node} "$@" ;; esac
unset PYTHONDONTWRITEBYTECODE
export {variables}
exec "{python}" -S "{program}" {node} "$@"
"""


def make_variables(compiled):
    """Return the variables of a node's Python, whose modules are compiled once for all tests."""
    return {"PYTHONPATH": f"{USERDATA}:{CONTRACT}:{PACKAGES}", "PYTHONPYCACHEPREFIX": str(compiled)}


class JobLab:
    """Nodes of one cluster; the first is the master."""

    def __init__(self, folder, count, compiled):
        self.folder = folder
        self.compiled = compiled
        self.addresses = [f"10.0.0.{9 + index}" for index in range(count)]
        self.started = []
        (folder / "programs").mkdir()
        (folder / "efs").mkdir()
        (folder / "user").mkdir()
        for name, text in PROGRAMS.items():
            self.write_program(name, text)
        lines = [f"{address} deeplearning-worker{index + 1}\n" for index, address in enumerate(self.addresses)]
        (folder / "hosts").write_text("".join(lines))
        for index, address in enumerate(self.addresses):
            self._make_node(index, address)
        self.install(1)

    def _make_node(self, index, address):
        root = self.folder / address
        for name in ("mnt", "opt/deeplearning/provision", "proc/sys/kernel/random", "tmp"):
            (root / name).mkdir(parents=True)
        (root / "mnt/efs").symlink_to(self.folder / "efs")
        (root / "proc/sys/kernel/random/boot_id").write_text("boot\n")
        (root / "deeplearning").write_text(
            COMMAND_TEXT.format(
                python=sys.executable,
                client=self.compiled / "client.py",
                socket=self.compiled / "socket",
                node=f'"{self.folder}" {address}',
                variables=" ".join(f"{name}='{value}'" for name, value in make_variables(self.compiled).items()),
                program=job_node.__file__,
            )
        )
        (root / "deeplearning").chmod(0o755)
        self.set_facts(index)

    def write_program(self, name, text):
        """Replace a program of all nodes."""
        path = self.folder / "programs" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def write_job(self, text, name="train.sh"):
        """Write the user's program to the shared file system; return its path."""
        path = self.folder / "efs" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def instance(self, index):
        return f"i-{index:017x}"

    def set_facts(self, index, **changes):
        """Write what a node knows of itself."""
        facts = NodeFacts(
            cluster="digits",
            role="worker" if index else "master",
            instance_id=self.instance(index),
            login_user=getpass.getuser(),
            mount_point="/mnt/efs",
            expected_gpu_count=0,
            region="eu-west-1",
            needs=JobNeeds({"master": CPU, "worker": CPU}),
        )
        replace(facts, **changes).write(self.folder / self.addresses[index])

    def install(self, generation, only=None):
        """Install a generation of the membership on all nodes, or on one."""
        members = [
            {
                "host": f"deeplearning-worker{index + 1}",
                **Member(
                    self.instance(index), address, 0, f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey{index}"
                ).to_document(),
            }
            for index, address in enumerate(self.addresses)
        ]
        document = {"cluster": "digits", "generation": generation, "members": members}
        for index, address in enumerate(self.addresses):
            if only in {None, index}:
                path = self.folder / address / "opt/deeplearning/membership.json"
                path.write_text(json.dumps(document))

    def silence(self, index):
        """Let a node not answer."""
        (self.folder / self.addresses[index] / "silent").touch()

    def asked(self, index):
        """Return the subcommands that a node was asked for over SSH."""
        path = self.folder / self.addresses[index] / "asked"
        return path.read_text().split() if path.exists() else []

    def _environment(self, variables):
        own = {"LAB_FOLDER": str(self.folder), "LAB": f"{self.folder}@{self.addresses[0]}", **variables}
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return {**kept, "PATH": f"{self.folder}/programs:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", **own}

    def start(self, *arguments, **variables):
        """Start a subcommand on the master."""
        process = subprocess.Popen(
            [self.folder / self.addresses[0] / "deeplearning", *arguments],
            env=self._environment(variables),
            cwd=self.folder / "user",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def run(self, *arguments, **variables):
        """Run a subcommand on the master to its end."""
        return self.finish(self.start(*arguments, **variables))

    @staticmethod
    def finish(process):
        """Wait for a subcommand; return status and output as `subprocess.run` does."""
        output, errors = process.communicate(timeout=GENEROUS_SECONDS)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def status(self, name):
        """Return the status document of a run."""
        job, _, number = name.partition("/")
        path = self.folder / "efs/jobs" / job / "runs" / number / "status.json"
        return json.loads(path.read_text()) if path.exists() else None

    def read(self, name):
        """Return a file below the jobs folder."""
        return (self.folder / "efs/jobs" / name).read_text()

    def processes(self):
        """Return the processes of jobs of this lab, on any node: process id -> command line."""
        found = {}
        for path in Path("/proc").iterdir():
            if not path.name.isdigit():
                continue
            try:
                variables = (path / "environ").read_bytes().split(b"\0")
                words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            is_ours = any(word.startswith(f"LAB={self.folder}@".encode()) for word in variables)
            if is_ours and any(word.startswith(b"DEEPLEARNING_JOB=") for word in variables):
                found[int(path.name)] = words
        return found

    def close(self):
        """End whatever a failing test left."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate()
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def list_commands():
    """Return the command line of every process of this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes())
    return found


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """The folder of compiled modules, and of the socket where a process answers what hosts ask one another."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "client.py").write_text(job_node.CLIENT)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    words = [sys.executable, "-S", job_node.__file__, "--serve", folder / "socket"]
    with subprocess.Popen(words, env={**kept, **make_variables(folder)}, cwd="/", stdin=subprocess.DEVNULL) as server:
        wait_until((folder / "socket").exists)
        yield folder
        server.kill()


@pytest.fixture
def job_lab(tmp_path, compiled):
    """A master and one worker without GPUs."""
    lab = JobLab(tmp_path, 2, compiled)
    yield lab
    lab.close()
    shutil.rmtree(tmp_path, ignore_errors=True)
