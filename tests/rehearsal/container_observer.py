"""
Runs inside the lab's outer namespaces: starts containers, looks at them, and prints what it saw as JSON.

usage: container_observer.py BASE_ROOT WORK
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

from lab_observer import GATEWAY, GENEROUS_SECONDS

from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.lab import ContainerOrder, Image, Lab, Mount
from cdk_rehearsal.lab.network import CREDENTIALS_ADDRESS

FILE_SYSTEM = "fs-0123456789abcdef0"
HOSTS = {"algo-1": "10.0.0.20", "algo-2": "10.0.128.21", "algo-3": "10.0.0.22"}
MOUNTS = (
    Mount(file_system_id=FILE_SYSTEM, folder="/shared", target="/opt/ml/input/data/shared"),
    Mount(file_system_id=FILE_SYSTEM, folder="/", target="/opt/ml/input/data/all", is_read_only=True),
)
HANDLER = """
import signal, subprocess, sys
subprocess.Popen(["sleep", "infinity"])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(open("/opt/ml/output/failure", "w").write("was told")))
print("ready", flush=True)
while True:
    signal.pause()
"""
LISTENER = """
import socket
with socket.create_server(("", 7000)) as server:
    print("ready", flush=True)
    while True:
        server.accept()[0].close()
"""
DEAF = "trap '' TERM; echo ready; while true; do sleep infinity; done"


class Containers:
    """Starts containers of one job, and waits for what they say."""

    def __init__(self, lab, work):
        self.lab = lab
        self.said = {}
        self.layer = work / "layer"
        self.layer.mkdir()
        (self.layer / "of-the-image").write_text("layer\n")

    def start(self, name, *command, files=None, **more):
        said = self.said[name] = queue.Queue()
        order = ContainerOrder(
            container_id=f"job-{name}",
            hostname=name,
            address=HOSTS[name],
            prefix_length=20,
            layers=[self.layer],
            command=command,
            environment={"COLOUR": "dark red"},
            hosts=HOSTS,
            files={"/opt/ml/output/data/.keep": b"", **(files or {})},
            **more,
        )
        return self.lab.start_container(order, said.put)

    def await_line(self, name):
        return self.said[name].get(timeout=GENEROUS_SECONDS)

    def rest(self, name):
        return [self.said[name].get_nowait() for _ in range(self.said[name].qsize())]

    def ask(self, name, script, **options):
        answer = self.lab.run(f"job-{name}", ["bash", "-c", script], timeout=GENEROUS_SECONDS, **options)
        return [answer.returncode, answer.stdout.strip(), answer.stderr.strip()]

    def remove(self, *names):
        for name in names:
            self.lab.remove_container(f"job-{name}")


def observe_program(containers):
    script = "env; echo $$; hostname; cat /etc/hosts /of-the-image; printf 'one\\rtwo\\n'; printf last; exit 5"
    container = containers.start("algo-1", "sh", "-c", script)
    status = container.wait(GENEROUS_SECONDS)
    lines = containers.rest("algo-1")
    containers.remove("algo-1")
    absent = containers.start("algo-1", "no-such-program")
    absent_status = absent.wait(GENEROUS_SECONDS)
    containers.remove("algo-1")
    return {"status": status, "lines": lines, "absent": absent_status}


def observe_life(containers, shared):
    """See what is told while a program runs, and how programs end."""
    wait = "echo begun; until [ -e /opt/ml/input/data/shared/go ]; do sleep 0.1; done; echo gone"
    waiting = containers.start("algo-1", "sh", "-c", wait, mounts=MOUNTS)
    begun = containers.await_line("algo-1")
    running = waiting.wait(0)
    (shared / "go").touch()
    seen = {"told": [begun, running, waiting.wait(GENEROUS_SECONDS), containers.rest("algo-1")]}
    containers.remove("algo-1")

    handler = containers.start("algo-1", "python3", "-c", HANDLER)
    deaf = containers.start("algo-2", "sh", "-c", DEAF)
    for name in ("algo-1", "algo-2"):
        containers.await_line(name)
    seen["stopped"] = [handler.stop(GENEROUS_SECONDS), deaf.stop(0.2)]
    seen["left"] = (handler.root / "opt/ml/output/failure").read_text()
    with contextlib.suppress(RehearsalError):
        containers.ask("algo-1", "true")
        seen["entered after the end"] = True
    containers.remove("algo-1", "algo-2")
    return seen


def observe_inside(containers):
    """See what other programs see in a container."""
    config = {"/opt/ml/input/config/resourceconfig.json": b"{}"}
    containers.start("algo-1", "python3", "-c", LISTENER, files=config, mounts=MOUNTS)
    containers.await_line("algo-1")
    ask = partial(containers.ask, "algo-1")
    (server := HTTPServer((CREDENTIALS_ADDRESS, 80), Credentials)).timeout = GENEROUS_SECONDS
    Thread(target=server.handle_request, daemon=True).start()
    seen = {
        "process 1": ask("tr '\\0' ' ' < /proc/1/cmdline | head -1; tr '\\0' '\\n' < /proc/1/environ | sort"),
        "executed": ask("printenv COLOUR"),
        "login shell": ask("id -un; pwd; printenv COLOUR", login_shell=True),
        "files": ask("cat /opt/ml/input/config/resourceconfig.json"),
        "read": containers.lab.read_file("job-algo-1", "/etc/hostname").decode(),
        "written": ask("echo of algo-1 > /opt/ml/input/data/shared/note; cat /opt/ml/input/data/all/shared/note"),
        "read-only": ask("touch /opt/ml/input/data/all/note")[0],
        "mount": ask("mount -t tmpfs none /mnt")[0],
        "link": ask("ip link set eth0 down")[0],
        "settings": ask("echo 0 > /proc/sys/kernel/panic")[0],
        "devices": ask("ls /dev | tr '\\n' ' '")[1],
        "interface": ask("ip -brief -4 address show dev eth0")[1].split()[-1],
        "metadata": ask("curl -s -m 2 http://169.254.169.254/latest/meta-data/")[0],
        "credentials": ask(f"curl -s http://{CREDENTIALS_ADDRESS}/")[1],
        "killed": containers.lab.run("job-algo-1", ["sleep", "infinity"], timeout=0.1).returncode,
    }
    server.server_close()
    containers.remove("algo-1")
    return seen


class Credentials(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"for the role")

    def log_message(self, *_):
        pass


def observe_network(containers):
    for name in HOSTS:
        containers.start(name, "python3", "-c", LISTENER)
        containers.await_line(name)
    pairs = [(one, other) for one in HOSTS for other in HOSTS if one != other]

    def reach():
        script = "timeout 2 bash -c '</dev/tcp/{}/7000'"
        return {f"{one} {other}": containers.ask(one, script.format(other))[0] for one, other in pairs}

    before = reach()
    containers.lab.separate("job-algo-1", "job-algo-2")
    containers.lab.separate("job-algo-3", "job-algo-1")
    seen = {"before": before, "separate": reach()}
    containers.remove(*HOSTS)
    return seen


def observe_ssh(containers, work):
    """See whether an SSH server works with the rights of a container, as the user root."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", work / "login"], check=True)
    own = {"/root/.ssh/authorized_keys": (work / "login.pub").read_bytes()}
    serve = "ssh-keygen -q -A; mkdir -p /run/sshd; /usr/sbin/sshd; echo ready; exec sleep infinity"
    containers.start("algo-2", "sh", "-c", serve, files=own)
    containers.await_line("algo-2")
    containers.start("algo-1", "sleep", "infinity", files={"/root/key": (work / "login").read_bytes()})
    options = "-i /root/key -o BatchMode=yes -o StrictHostKeyChecking=accept-new"
    seen = containers.ask("algo-1", f"chmod 600 /root/key; ssh {options} algo-2 'hostname; id -u'")
    containers.remove("algo-1", "algo-2")
    return seen


def observe_refusals(containers, shared):
    (shared / "file").touch()
    nowhere = Mount(file_system_id=FILE_SYSTEM, folder="/nowhere", target="/mnt")
    blocked = Mount(file_system_id=FILE_SYSTEM, folder="/shared", target="/etc/passwd/folder")

    def refuse(**order):
        try:
            containers.start("algo-1", "sleep", "infinity", **order)
        except RehearsalError as error:
            return str(error)
        return ""

    refused = {"folder": refuse(mounts=[nowhere]), "start": refuse(mounts=[blocked]), "new": refuse(), "id": refuse()}
    containers.remove("algo-1", "algo-1")
    return refused


def read_traces(work):
    """Return what containers may leave behind: mounts, links, children and open namespaces of this process."""
    links = subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True, check=True).stdout
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    descriptors = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return {
        "mounts": [mount for mount in mounts if mount.startswith(str(work))],
        "links": [line.split()[0] for line in links.splitlines()],
        "routes": routes,
        "children": Path(f"/proc/self/task/{os.getpid()}/children").read_text().split(),
        "namespaces": sum(name.startswith("net:") for name in descriptors),
        "pipes": sum(name.startswith("pipe:") for name in descriptors),
    }


def main():
    base, work = Path(sys.argv[1]), Path(sys.argv[2])
    image = Image(f"http://{GATEWAY}:5000")
    with Lab(base_root=base / "root", work=work / "lab", gateway=GATEWAY, image=image) as lab:
        containers = Containers(lab, work)
        shared = lab.file_system(FILE_SYSTEM) / "shared"
        shared.mkdir()
        before = read_traces(work)
        named = [[stand_in.name for stand_in in lab.stand_ins]]
        seen = {
            "program": observe_program(containers),
            "life": observe_life(containers, shared),
            "inside": observe_inside(containers),
            "network": observe_network(containers),
            "ssh": observe_ssh(containers, work),
            "refused": observe_refusals(containers, shared),
            "stand-ins": [*named, [stand_in.name for stand_in in lab.stand_ins]],
            "traces": [before, read_traces(work)],
        }
        containers.start("algo-1", "sleep", "infinity")
    seen["traces of the lab"] = read_traces(work)["children"]
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main()
