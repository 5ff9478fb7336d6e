"""
Runs inside the lab's outer namespaces: breaks machines one way after the other, and prints what they saw as JSON.

usage: lab_fault_observer.py BASE_ROOT WORK
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from lab_observer import ADDRESSES, BOOT_ENDED, GATEWAY, GENEROUS_SECONDS, IDS, NFS, Observer

from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.lab import Gpus, Image, Lab, MetadataFault, MountFault, NodeFaults

NEVER = 3600.0
DISK_BYTES = 64 * 2**20
QUERY = "index,ecc.errors.uncorrected.volatile.total,retired_pages.pending,remapped_rows.failure"
TOKEN = "$(curl -s -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token)"


class FaultObserver(Observer):
    """Boots machines with faults, and asks them in ways that show a fault."""

    def boot(self, index, faults=None):
        self.lab.boot(replace(self.machine(index), image_parts=frozenset()), faults)
        self.wait(index, BOOT_ENDED)

    def metadata(self, index, path, limit=GENEROUS_SECONDS):
        """Ask the metadata service with a token: (curl's status, HTTP status, body)."""
        url = f"http://169.254.169.254/latest/{path}"
        script = f"curl -s -m {limit} -w '\\n%{{http_code}}' -H X-aws-ec2-metadata-token:{TOKEN} {url}"
        status, output, _ = self.ask(index, script)
        body, _, code = output.rpartition("\n")
        return [status, code, body]

    def mount(self, index, name, limit=GENEROUS_SECONDS):
        """Mount the file system, for at most some seconds: (status, what mount said)."""
        status, _, errors = self.ask(index, f"mkdir -p /{name} && timeout {limit} {NFS} /{name}")
        return [status, errors]


def observe_announcements(observer):
    node, read = observer.lab.node(IDS[0]), observer.metadata
    action, at, rebalance = (
        "meta-data/spot/instance-action",
        "meta-data/spot/termination-time",
        "meta-data/events/recommendations/rebalance",
    )
    seen = {"nothing announced": [read(0, path)[1] for path in (action, at, rebalance)]}
    node.metadata.announce_interruption(120)
    node.metadata.announce_rebalance()
    seen["announced"] = [read(0, path) for path in (action, at, rebalance)]
    seen["announced at"] = time.time()
    seen["announced to another"] = read(1, action)[1]
    node.metadata.clear_announcements()
    seen["announcement cleared"] = [read(0, path)[1] for path in (action, at, rebalance)]
    return seen


def observe_metadata(observer):
    node, read = observer.lab.node(IDS[0]), observer.metadata
    path = "meta-data/instance-id"
    node.metadata.fault = MetadataFault(is_refusing=True)
    seen = {"metadata late from the beginning": read(1, path, limit=0.2)[0], "metadata refused": read(0, path)[1]}
    node.metadata.fault = MetadataFault(delay_seconds=20)
    seen["metadata late"] = read(0, path, limit=1)[0]
    node.metadata.fault = MetadataFault()
    return seen | {"metadata mended": read(0, path)}


def observe_gpus(observer):
    ask, node = observer.ask, observer.lab.node(IDS[0])
    query = f"nvidia-smi --query-gpu={QUERY} --format=csv,noheader,nounits"
    seen = {"gpus": ask(0, query), "gpus from the beginning": ask(1, query)}
    node.set_gpus(1, ecc_errors=7, has_pending_pages=True, has_row_failure=True)
    seen["sick gpus"] = ask(0, query)
    seen["listed gpus"] = ask(0, "nvidia-smi -L | wc -l")[1]
    seen["an unknown field"] = ask(0, "nvidia-smi --query-gpu=bogus --format=csv")
    node.set_gpus(0)
    seen["no gpus"] = ask(0, "nvidia-smi -L")
    return seen


def observe_mounts(observer):
    node, mount = observer.lab.node(IDS[0]), observer.mount
    seen = {"mount from the beginning": mount(1, "first")}
    observer.lab.node(IDS[1]).mend_mounts()
    seen["mount mended"] = mount(1, "second")
    node.break_mounts("unresolvable")
    seen["mount unresolvable"] = mount(0, "first")
    node.break_mounts("hang")
    seen["mount hangs"] = mount(0, "second", limit=1)
    node.break_mounts("hang", 0.5)
    return seen | {"mount hung for a time": mount(0, "third")}


def observe_disk(observer):
    ask, node = observer.ask, observer.lab.node(IDS[0])
    fill = "dd if=/dev/zero of=/root/big bs=64k count=1024 status=none"
    ask(0, "echo old > /root/file")
    seen = {"disk of a size": ask(1, "df --output=size --block-size=1 / | tail -1")[1]}
    node.disk.fill()
    seen["disk full"] = ask(0, "echo new > /root/new")
    seen["old file"] = ask(0, "cat /root/file; df --output=avail / | tail -1")[1].split()
    seen["another's disk"] = ask(2, fill)[0]
    node.disk.free()
    seen["disk freed"] = ask(0, "echo new > /root/new")[0]
    node.disk.fill(2**20)
    seen["disk nearly full"] = [ask(0, "head -c 500000 /dev/zero > /root/fits")[0], ask(0, fill)[0]]
    node.disk.free()
    return seen


def observe_sshd(observer):
    ask, node = observer.ask, observer.lab.node(IDS[0])
    reach = f"bash -c '</dev/tcp/{ADDRESSES[0]}/22'"
    seen = {"sshd never": ask(1, "systemctl is-active ssh delayed-sshd")[1].split()}
    observer.wait(2, "systemctl is-active ssh")
    node.control_sshd("stop")
    seen["sshd stopped"] = ask(2, reach)[0]
    node.control_sshd("start")
    observer.wait(2, reach)
    return seen


def main():
    base_root, work = Path(sys.argv[1]), Path(sys.argv[2])
    image = Image(f"http://{GATEWAY}:5000", 2)
    lab = Lab(base_root=base_root, work=work / "lab", gateway=GATEWAY, image=image)
    broken = NodeFaults(
        gpus=Gpus(1, ecc_errors=3),
        mount=MountFault("unresolvable"),
        metadata=MetadataFault(delay_seconds=2),
        disk_bytes=DISK_BYTES,
        sshd_delay=NEVER,
    )
    with lab:
        observer = FaultObserver(lab)
        observer.boot(0)
        observer.boot(1, broken)
        observer.boot(2, NodeFaults(sshd_delay=0.2))
        seen = {}
        for observe in (
            observe_announcements,
            observe_metadata,
            observe_gpus,
            observe_mounts,
            observe_disk,
            observe_sshd,
        ):
            seen |= observe(observer)
        lab.power_off(IDS[2])
        try:
            lab.node(IDS[2])
        except RehearsalError as error:
            seen["a machine that is gone"] = str(error)
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main()
