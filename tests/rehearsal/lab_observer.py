"""
Runs inside the lab's outer namespaces: boots machines, looks at them, and prints what it saw as JSON.

usage: lab_observer.py BASE_ROOT WORK (observe | linger)
"""

import json
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cdk_rehearsal.lab import Image, Lab
from cdk_rehearsal.lab.packages import PackageServer
from cdk_rehearsal.machine import AccessPoint, Machine, RootOwner

GATEWAY = "10.0.0.1"
FILE_SYSTEM = "fs-0123456789abcdef0"
ACCESS_POINT = "fsap-0123456789abcdef0"
ROOTLESS_POINT = "fsap-0123456789abcdef1"
NFS = f"mount -t nfs4 -o nfsvers=4.1,hard,noresvport {FILE_SYSTEM}.efs.eu-west-1.amazonaws.com:/"
USER_DATA = """#!/bin/bash
set -eu
env | sort > /root/user-data-environment
echo run >> /root/user-data-runs
echo 'LAB_VARIABLE="two words"' >> /etc/environment
cat > /etc/systemd/system/beat.service <<'UNIT'
[Unit]
StartLimitIntervalSec=0
[Service]
ExecStart=/bin/sh -c 'echo beat >> /root/beats; exec sleep infinity'
Restart=always
RestartSec=100ms
[Install]
WantedBy=multi-user.target
UNIT
systemctl daemon-reload
systemctl enable --now beat.service
"""
BOOT_ENDED = "test -s /run/cloud-init/result.json"
ADDRESSES = ("10.0.0.10", "10.0.128.11", "10.0.128.12")
ARCHIVE_PORT = 3142
PARTS = frozenset({"amazon-linux", "compilers", "pytorch"})
"""Of the first two nodes."""
IDS = tuple(f"i-{number:017x}" for number in range(1, 4))
GENEROUS_SECONDS = 600
"""As in tests/real_time.py, which this program cannot import: it ends a hang, and decides no test."""


class Observer:
    """Asks the nodes and keeps their answers."""

    def __init__(self, lab):
        self.lab = lab
        self.key = ""

    def machine(self, index):
        return Machine(
            instance_id=IDS[index],
            address=ADDRESSES[index],
            prefix_length=20,
            vpc_networks=("10.0.0.0/16",),
            instance_type="c7i.large",
            zone="eu-west-1a",
            region="eu-west-1",
            image_id="ami-1",
            user_data=USER_DATA.encode(),
            role_name="Role",
            access_key_id="AKIA",
            secret_access_key="secret",
            session_token="token",
            tags={"deeplearning:role": "worker"},
            login_user="ubuntu",
            public_key=self.key,
            mount_targets={FILE_SYSTEM: "10.0.130.7"},
            access_points={
                ACCESS_POINT: AccessPoint(FILE_SYSTEM, "/team/cluster", RootOwner(1000, 1000, 0o750)),
                ROOTLESS_POINT: AccessPoint(FILE_SYSTEM, "/nowhere", None),
            },
            image_parts=PARTS if index < 2 else frozenset(),
        )

    def ask(self, index, script, *, user=None, login_shell=False):
        """Run a script in a node: (exit status, output, errors)."""
        answer = self.lab.run(
            IDS[index], ["bash", "-c", script], user=user, login_shell=login_shell, timeout=GENEROUS_SECONDS
        )
        return answer.returncode, answer.stdout.strip(), answer.stderr.strip()

    def wait(self, index, script):
        """Wait until a script succeeds in a node."""
        give_up = time.monotonic() + GENEROUS_SECONDS
        while self.ask(index, script)[0] != 0:
            if time.monotonic() > give_up:
                raise SystemExit(f"{script} never held on {IDS[index]}: {self.lab.node(IDS[index]).console()}")

    def write_unit(self, index, name, command):
        unit = f"[Service]\nType=oneshot\nExecStart=/bin/sh -c '{command}'\n"
        self.ask(index, f"cat > /etc/systemd/system/{name}.service <<'UNIT'\n{unit}UNIT")

    def boot_all(self):
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda index: self.lab.boot(self.machine(index)), range(3)))
        for index in range(3):
            self.wait(index, BOOT_ENDED)


def observe(observer, work):
    """Return name -> answer."""
    ask, lab = observer.ask, observer.lab
    seen = {"names": [ask(index, "hostname; cat /etc/machine-id") for index in range(3)]}
    seen["user data environment"] = lab.read_file(IDS[0], "/root/user-data-environment").decode()
    seen["host keys"] = [ask(index, "cat /etc/ssh/ssh_host_ed25519_key.pub")[1] for index in range(3)]
    seen["metadata without a token"] = ask(0, "curl -s -w '%{http_code}' http://169.254.169.254/latest/user-data")
    token = "$(curl -s -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token)"
    seen["own ids"] = [
        ask(i, f"curl -s -H X-aws-ec2-metadata-token:{token} http://169.254.169.254/latest/meta-data/instance-id")[1]
        for i in range(3)
    ]
    seen["a login shell"] = ask(0, "id -un; sudo id -u; sudo -E printenv LAB_VARIABLE", user="ubuntu", login_shell=True)
    seen["a bare shell"] = ask(0, "id -un; printenv LAB_VARIABLE", user="ubuntu")
    private = (work / "login").read_text()
    ask(0, f"umask 077; cat > ~/key <<'KEY'\n{private}KEY", user="ubuntu", login_shell=True)
    known = "\n".join(f"{address} {key}" for address, key in zip(ADDRESSES, seen["host keys"], strict=True))
    ask(0, f"cat > /etc/ssh/ssh_known_hosts <<'KEYS'\n{known}\nKEYS")
    ssh = "ssh -i key -o BatchMode=yes -o StrictHostKeyChecking=yes"
    ask(0, "systemctl reload sshd")
    seen["ssh across subnets"] = [
        ask(0, f"{ssh} ubuntu@{address} 'hostname; printenv LAB_VARIABLE'", user="ubuntu", login_shell=True)
        for address in ADDRESSES
    ]
    seen["ssh as root"] = ask(0, f"{ssh} root@{ADDRESSES[1]} true", user="ubuntu", login_shell=True)
    seen |= observe_image_parts(observer) | observe_mounts(observer) | observe_services(observer)
    seen["nvidia-smi"] = ask(0, "nvidia-smi -L | cut -d: -f1")
    seen["silent"] = observe_silence(observer)
    seen["rebooted"] = observe_reboot(observer)
    seen["ended"] = [observe_end(observer, 2, verb) for verb in ("reboot", "poweroff")]
    lab.power_off(IDS[2])
    lab.power_off(IDS[2])
    seen["off"] = ask(0, f"timeout 2 bash -c '</dev/tcp/{ADDRESSES[2]}/22'")[0]
    return seen


def observe_image_parts(observer):
    probe = "import sys, torch; print(sys.prefix, sys.prefix != sys.base_prefix)"
    script = f"command -v apt-get dnf mount.efs g++ mpirun; /opt/pytorch/bin/python -I -c '{probe}'"
    before = [observer.ask(index, script) for index in (0, 2)]
    absent = "horovod torch numpy pip ensurepip"
    find = f"import importlib.util as u; print([n for n in {absent.split()} if u.find_spec(n)])"
    install = "sudo apt-get update && sudo apt-get install --yes --no-install-recommends make && make --version"
    installed = [
        observer.ask(index, "dnf install --assumeyes amazon-efs-utils && command -v mount.efs") for index in (0, 1)
    ]
    return {
        "parts of images": before,
        "efs-utils": installed,
        "a stock image's Python": observer.ask(2, f'python3 -I -c "{find}"'),
        "a package from the archive": observer.ask(2, install, user="ubuntu"),
    }


def observe_mounts(observer):
    ask = observer.ask
    for index in (0, 1):
        ask(index, f"mkdir -p /efs && {NFS} /efs")
    ask(0, "echo shared > /efs/file")
    efs, rootless = (
        f"mkdir -p /point && mount -t efs -o tls,accesspoint={point} {FILE_SYSTEM}:/ /point"
        for point in (ACCESS_POINT, ROOTLESS_POINT)
    )
    return {
        "a new file system": ask(0, "stat -c '%U %a' /efs"),
        "a shared file": ask(1, "cat /efs/file"),
        "no mount target": ask(0, f"mkdir -p /x && {NFS.replace('fs-0', 'fs-1')} /x"),
        "an access point without a root": ask(1, rootless),
        "an access point": ask(1, f"{efs} && stat -c '%u %g %a' /point"),
    }


def observe_services(observer):
    ask = observer.ask
    seen = {"the image's services": ask(0, "systemctl is-active ssh.service sshd beat")}
    # A process of another machine would be 0 there, since it has no number in this machine's process namespace.
    groups = "find /sys/fs/cgroup -name cgroup.procs -exec cat {} +"
    seen["foreign processes in cgroups"] = ask(0, f"{groups} | grep -cx 0; {groups} | grep -cx 1")
    ask(0, "pkill -KILL -x sleep")
    observer.wait(0, "test $(wc -l < /root/beats) -eq 2")
    observer.write_unit(0, "bad", "exit 3")
    seen["a failing oneshot"] = ask(0, "systemctl start bad")
    observer.write_unit(0, "show", "env > /run/shown")
    drop_in = "/etc/systemd/system.conf.d/z.conf"
    ask(0, f"printf '[Manager]\\nDefaultEnvironment=MORE=1\\n' > {drop_in} && systemctl daemon-reexec")
    seen["default environment"] = ask(0, "systemctl start show; grep -E '^(MORE|AWS_ENDPOINT_URL|HOME)=' /run/shown")
    seen["a login shell's AWS"] = ask(0, "printenv AWS_ENDPOINT_URL", user="ubuntu", login_shell=True)
    seen["a user's restart"] = ask(0, "systemctl restart ssh", user="ubuntu")
    seen["a stopped service"] = ask(2, "systemctl stop beat; systemctl is-active beat; pgrep -c -x sleep")
    return seen


def observe_silence(observer):
    reach = f"bash -c '</dev/tcp/{ADDRESSES[2]}/22'"
    before = observer.ask(0, reach)[0]
    observer.lab.node(IDS[2]).link.set_up(up=False)
    during = observer.ask(0, f"timeout 2 {reach}")[0]
    observer.lab.node(IDS[2]).link.set_up(up=True)
    observer.wait(0, reach)
    return [before, during]


def observe_reboot(observer):
    observer.ask(1, "echo kept > /root/kept; touch /run/gone")
    observer.lab.reboot(IDS[1])
    observer.wait(1, BOOT_ENDED)
    key = observer.ask(1, "cat /etc/ssh/ssh_host_ed25519_key.pub")[1]
    return [*observer.ask(1, "cat /root/kept; wc -l < /root/user-data-runs; ls /run/gone; hostname"), key]


def observe_end(observer, index, verb):
    """Let a node end itself, and start it again."""
    observer.ask(index, f"systemctl --no-block {verb}")
    give_up = time.monotonic() + GENEROUS_SECONDS
    while not (end := observer.lab.node(IDS[index]).ended()) and time.monotonic() < give_up:
        time.sleep(0.1)
    observer.lab.reboot(IDS[index])
    observer.wait(index, BOOT_ENDED)
    return end


def main():
    base, work, what = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    lab = Lab(
        base_root=base / "root",
        layers={part: Path(layer) for part, layer in json.loads(sys.argv[4]).items()},
        work=work / "lab",
        gateway=GATEWAY,
        image=Image(f"http://{GATEWAY}:5000", 2, archive_url=f"http://{GATEWAY}:{ARCHIVE_PORT}/"),
    )
    with lab, PackageServer(GATEWAY, ARCHIVE_PORT, base / "archive"):
        observer = Observer(lab)
        observer.key = (work / "login.pub").read_text()
        observer.boot_all()
        answer = observe(observer, work) if what == "observe" else "running"
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
        if what == "linger":
            signal.pause()


if __name__ == "__main__":
    main()
