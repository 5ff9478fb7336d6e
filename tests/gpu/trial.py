"""The trial in its namespaces: builds the environment, makes a cluster of this one node, and runs jobs on its GPU."""

import contextlib
import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from deeplearning_agent.boot.steps import install_command, install_membership
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.membership import Member
from deeplearning_contract.names import AGENT_DIRECTORY, ENVIRONMENT_DIRECTORY, NodeRole
from deeplearning_contract.setting_parts import FileSystemSettings
from deeplearning_contract.settings import NodeSettings
from deeplearning_node.health.gpus import check_gpus, count_gpus, read_gpus, read_utilization
from deeplearning_node.instance_metadata import Identity
from deeplearning_node.node import Node
from deeplearning_node.node_facts import COMMAND_FILE, FACTS_FILE, NodeFacts
from deeplearning_node.ssh import make_user_key, read_host_key, wait_for_sshd
from deeplearning_provision.horovod.build import GPU_TRIAL

RESULT = "RESULT "
"""Prefix of the line with the results."""
INSTANCE, ADDRESS = "i-0123456789abcdef0", "10.0.0.9"
PAIRS = 4
"""An even number, so that each way is the first of a pair as often as the other."""
SECONDS = 60
LAYERS, KEYS, IMAGE, SSHD = map(Path, ("/opt/deeplearning", Path.home() / ".ssh", "/opt/pytorch", "/run/sshd"))
FOLDERS = (LAYERS, KEYS, IMAGE, SSHD)
"""Folders that exist on this machine during the trial, empty where they did not exist before."""
NEW_NETWORK = 0x40000000
"""CLONE_NEWNET of sched.h; Python 3.11 has no `os.unshare`."""
BIN = f"{ENVIRONMENT_DIRECTORY}/current/bin"
TRAIN = ("python", str(Path(__file__).with_name("training_program.py")))


def main() -> None:
    """Carry out the trial for the context and the PyTorch of the argument; the last line has the results."""
    words = json.loads(sys.argv[1])
    hide_machine(Path(words["prefix"]))
    begun = time.monotonic()
    build(Path(words["context"]))
    figures = {"seconds of the build": [round(time.monotonic() - begun, 1)]}
    with form_cluster() as node:
        checks = check_node(node)
        figures |= measure(node)
    print(RESULT + json.dumps({"checks": checks, "figures": figures}), flush=True)


def hide_machine(prefix: Path) -> None:
    """Hide all that a node writes below empty folders and overlays: this machine's own files stay as they are."""
    kept = {path: path.read_bytes() for path in map(Path, ("/etc/resolv.conf", "/etc/hosts")) if path.exists()}
    for folder in FOLDERS:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in (LAYERS, KEYS):
        run("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(folder))
    for folder in ("etc", "usr/local/bin"):
        upper, work = (LAYERS / "layers" / folder / name for name in ("upper", "work"))
        for layer in (upper, work):
            layer.mkdir(parents=True)
        options = f"lowerdir=/{folder},upperdir={upper},workdir={work}"
        run("mount", "-t", "overlay", "-o", options, "overlay", f"/{folder}")
    kept[Path("/etc/hosts")] += f"\n127.0.0.1 {socket.gethostname()}\n".encode()  # Gloo looks up the own name.
    kept[Path("/usr/local/bin/systemctl")] = b"#!/bin/sh\n"
    for path, text in kept.items():  # A container mounts its own over those in /etc, which the overlay does not show.
        path.unlink(missing_ok=True)
        path.write_bytes(text)
        path.chmod(0o755)
    if prefix not in {Path("/usr"), IMAGE}:
        run("mount", "--bind", str(prefix), str(IMAGE))


def build(context: Path) -> None:
    """Build the environment as the image's Dockerfile does."""
    with zipfile.ZipFile(context / "agent.zip") as archive:
        archive.extractall(AGENT_DIRECTORY)
    shutil.copy(context / "node.json", FACTS_FILE)
    run(sys.executable, "-m", "deeplearning_command", "environment", "--build", folder=AGENT_DIRECTORY)


@contextlib.contextmanager
def form_cluster() -> Iterator[Node]:
    """Make this machine a cluster of one, in a network of its own with a real sshd, and yield the node."""
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "could not make a network")
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
    node = make_node(NodeFacts.read(Path("/")))
    key = read_host_key(node)
    options = ("-o", f"ListenAddress={ADDRESS}", "-o", "PermitRootLogin=prohibit-password", "-o", "PidFile=none")
    sshd = shutil.which("sshd", path=node.programs.search_path) or ""
    with subprocess.Popen([sshd, "-D", "-e", *options]) as server:
        try:
            wait_for_sshd(node, key, node.limit(SECONDS))
            own = Member(INSTANCE, ADDRESS, count_gpus(node), key)
            install_command(node)
            install_membership(node, form(own, make_user_key(node)), own)
            yield node
        finally:
            server.terminate()


def form(own: Member, user_key: str) -> ClusterState:
    return ClusterState("gpu-trial", 1, 1, Phase.FORMED, 1, (INSTANCE,), members=(own,), user_key=user_key)


def make_node(facts: NodeFacts) -> Node:
    """Return the node that `node.json` describes, as its user data would."""
    absent = ("region", "state_table", "master_queue_url", "worker_queue_url", "report_queue_url", "report_sender")
    settings = NodeSettings(
        cluster="gpu-trial",
        role=NodeRole.MASTER,
        **dict.fromkeys(absent, ""),
        signal_url="",
        login_user="root",
        file_system=FileSystemSettings("nfs4", "", "", facts.mount_point),
        expected_gpu_count=1,
        packages={},
        setup_seconds=0,
        needs=facts.needs,
    )
    return Node(settings, Identity(INSTANCE, ADDRESS, (f"{ADDRESS}/32",)))


def check_node(node: Node) -> dict[str, bool]:
    """Read the driver as agents do, reduce tensors on the GPU, and let Horovod refuse a model in channels_last."""
    count = count_gpus(node)
    reading = read_gpus(node.programs, node.limit(SECONDS))
    fewer, _ = check_gpus(node.programs, count + 1, SECONDS)
    refused = start_job("refused", "horovod", "--way", "horovod", "--channels-last", "--out", "/dev/null")
    return {
        "the GPUs are counted and their memory is read": reading.count == count > 0 and not reading.unread,
        "the GPUs are fit": all(finding.ok for finding in check_gpus(node.programs, count, SECONDS)),
        "a missing GPU is a fault with a remedy": not fewer.ok and bool(fewer.remedy),
        "utilization is read": read_utilization(node.programs, SECONDS) is not None,
        "float32 and float16 are reduced on the GPU": start(["python", "-c", GPU_TRIAL]).returncode == 0,
        "the refusal of channels_last has a remedy": refused.returncode != 0 and "remedy: Horovod" in refused.stderr,
    }


def measure(node: Node) -> dict[str, list[float]]:
    """Train in alternating pairs through `deeplearning run` and bare horovodrun, then in the other ways."""
    count, bare = count_gpus(node), ["horovodrun", "--gloo", "-np"]
    ways = {
        "run": lambda name, out: start_job(name, "horovod", "--way", "horovod", "--out", out),
        "bare": lambda _, out: start([*bare, str(count), *TRAIN, "--way", "horovod", "--out", out]),
        "plain": lambda _, out: start([*TRAIN, "--out", out]),
        "plain, channels_last": lambda _, out: start([*TRAIN, "--channels-last", "--out", out]),
        "torchrun, channels_last": lambda name, out: start_job(
            name, "torchrun", "--way", "ddp", "--channels-last", "--out", out
        ),
    }
    speeds: dict[str, list[float]] = {way: [] for way in ways}
    walls: dict[str, list[float]] = {way: [] for way in ways}
    pairs = [way for number in range(PAIRS) for way in (("run", "bare"), ("bare", "run"))[number % 2]]
    for number, way in enumerate([*pairs, *list(ways)[2:]]):
        out, begun = Path(f"/opt/deeplearning/shared/{number}.json"), time.monotonic()
        done = ways[way](f"trial-{number}", str(out))
        walls[way].append(round(time.monotonic() - begun, 1))
        if done.returncode:
            raise RuntimeError(f"{way} must train, ended with status {done.returncode}: {done.stdout}{done.stderr}")
        speeds[way].append(json.loads(out.read_text())["samples_per_second"])
        print(f"{way}: {speeds[way][-1]} samples a second", flush=True)
    ratios = [round(run / other, 3) for run, other in zip(speeds["run"], speeds["bare"], strict=True)]
    figures = {f"samples a second, {way}": found for way, found in speeds.items()}
    return figures | {f"seconds, {way}": found for way, found in walls.items()} | {"run against bare": ratios}


def start_job(name: str, launcher: str, *words: str) -> "subprocess.CompletedProcess[str]":
    return start([COMMAND_FILE, "run", "--name", name, "--launcher", launcher, "--", *TRAIN, *words])


def start(words: list[str]) -> "subprocess.CompletedProcess[str]":
    """Run a command on the shared folder, with the environment's programs first in `PATH`."""
    variables = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "HOROVOD_CONTROLLER": "gloo"}
    folder = "/opt/deeplearning/shared"
    return subprocess.run(words, cwd=folder, env=variables, check=False, capture_output=True, text=True)


def run(*words: str, folder: str = "/") -> None:
    subprocess.run(words, cwd=folder, check=True)


if __name__ == "__main__":
    main()
