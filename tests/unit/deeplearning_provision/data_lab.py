"""Nodes that stage data: their file trees below a temporary folder, S3 as moto behind a proxy that breaks on demand."""

import contextlib
import getpass
import gzip
import hashlib
import io
import os
import stat
import tarfile
import threading
import zipfile
from dataclasses import dataclass
from urllib.parse import urlsplit

import botocore.session
from moto.moto_api._internal.models import moto_api_backend

from deeplearning_contract.setting_parts import DataSettings, FileSystemSettings, JobNeeds
from deeplearning_node.deadline import Clock
from deeplearning_node.node_facts import NodeFacts
from deeplearning_node.programs import Programs
from deeplearning_node.provision_status import load_steps
from deeplearning_provision.data.sources import stage_all
from deeplearning_provision.s3 import TransferSettings
from deeplearning_provision.status import Status
from tests.real_time import GENEROUS_SECONDS
from tests.unit.local_aws import ask_moto
from tests.unit.loopback import LoopbackServer

REGION = "eu-west-1"
BUCKET = "training-data"
SETTINGS = TransferSettings(part_bytes=256 * 1024, threads=4)
MASTER, WORKER = "i-00000000000000001", "i-00000000000000002"
_KEPT_OUT = {"connection", "transfer-encoding", "date", "server"}


class BriefClock(Clock):
    """Real time in which every wait is short; `stop` ends who waits."""

    def __init__(self):
        self.skipped = 0.0
        self.waits = []
        self.stop = threading.Event()

    def read(self):
        return super().read() + self.skipped

    def wait(self, seconds):
        self.waits.append(seconds)
        if self.stop.wait(min(seconds, 0.01)):
            raise InterruptedError("the test ended the wait")
        self.skipped += seconds


@dataclass
class Fault:
    """Fault that the proxy injects into a response: cut it after some bytes, or send a status instead."""

    cut_after: int | None = None
    status: int | None = None
    code: str = "SlowDown"


class Proxy(LoopbackServer):
    """Hands calls to moto in this process, counts the bytes of objects, and breaks what `decide` says."""

    protocol_version = "HTTP/1.1"

    def __init__(self):
        super().__init__()
        self.decide = lambda method, path, limits: None
        self.gets = []
        self.calls = []
        self.served = 0
        self.lock = threading.Lock()

    def answer(self, handler, body):
        path, limits = urlsplit(handler.path), handler.headers.get("Range", "")
        is_object = handler.command == "GET" and path.path.count("/") >= 2
        with self.lock:
            self.calls.append((handler.command, path.path))
            if is_object:
                self.gets.append((path.path, limits))
        fault = self.decide(handler.command, path.path, limits) or Fault()
        if fault.status:
            text = f"<Error><Code>{fault.code}</Code><Message>as the test says</Message></Error>"
            self.send(handler, fault.status, {}, text.encode())
            return
        found = ask_moto(handler.command, handler.path, dict(handler.headers), body)
        headers = {name.lower(): value for name, value in found.headers if name.lower() not in _KEPT_OUT}
        self.send(handler, found.status, headers, found.body, fault, is_counted=is_object and found.status < 300)

    def send(self, handler, status, headers, data, fault=None, *, is_counted=False):
        headers = {"content-length": str(len(data)), **headers}
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command == "HEAD":
            return
        cut = fault.cut_after if fault else None
        sent = data if cut is None else data[:cut]
        handler.wfile.write(sent)
        handler.wfile.flush()
        if is_counted:
            with self.lock:
                self.served += len(sent)
        if cut is not None:
            handler.close_connection = True


@contextlib.contextmanager
def serve_s3(patch):
    """Lead S3's clients through a proxy to an empty moto."""
    moto_api_backend.reset()
    with contextlib.closing(Proxy()) as proxy:
        patch.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy


class DataLab:
    """A bucket, a shared file system, and nodes."""

    def __init__(self, directory, proxy):
        self.directory = directory
        self.proxy = proxy
        self.shared = directory / "efs"
        self.shared.mkdir()
        self.programs = directory / "programs"
        self.programs.mkdir()
        (self.programs / "mountpoint").write_text('#!/bin/sh\nexec /usr/bin/test -d "$2"\n')
        (self.programs / "mountpoint").chmod(0o755)
        self.client = botocore.session.Session().create_client("s3", region_name=REGION, endpoint_url=proxy.url)
        self.client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})

    def put(self, key, data, bucket=BUCKET, **options):
        self.client.put_object(Bucket=bucket, Key=key, Body=data, **options)

    def source(self, key, name="set", target="efs", bucket=BUCKET, sha256=""):
        return DataSettings(name, bucket, key, target, sha256)

    def root(self, instance):
        root = self.directory / instance
        if not root.exists():
            (root / "mnt").mkdir(parents=True)
            (root / "mnt/efs").symlink_to(self.shared)
            (root / "opt/deeplearning/local").mkdir(parents=True)
            (root / "proc/sys/kernel/random").mkdir(parents=True)
            (root / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
        return root

    def facts(self, instance, *sources, lustre=""):
        role = "master" if instance == MASTER else "worker"
        file_system = FileSystemSettings("lustre", "fs@tcp:/x", "", lustre) if lustre else None
        facts = NodeFacts(
            "cluster",
            role,
            instance,
            getpass.getuser(),
            "/mnt/efs",
            0,
            REGION,
            JobNeeds({}, sources, None, file_system),
        )
        facts.write(self.root(instance))
        return facts

    def stage(self, *sources, instance=MASTER, clock=None, lustre="", **options):
        """Stage on one node; return how it ended, and the steps."""
        facts, clock = self.facts(instance, *sources, lustre=lustre), clock or BriefClock()
        root = self.root(instance)
        status = Status(root, clock)
        options = {"settings": SETTINGS, **options}
        outcome = stage_all(facts, status, root, Programs(str(self.programs)), clock, **options)
        return outcome, load_steps(root)

    def start(self, *sources, **options):
        """Stage on one node in a thread."""
        self.root(options.get("instance", MASTER))
        return Running(self, sources, options)

    def data(self, name="set", instance=MASTER):
        return self.root(instance) / "opt/deeplearning/data" / name

    def leftovers(self):
        """Return what lies beside the published data, its marker and the notes."""
        folder, link = self.shared / "data/.set", self.shared / "data/set"
        kept = {"refused.json", "trouble.json"}
        kept |= {(name := link.readlink().name), f"{name}.json"} if link.is_symlink() else set()
        others = {path.name for path in folder.parent.iterdir()} - {"set", ".set"}
        return sorted({path.name for path in folder.iterdir()} - kept | others)


class Running:
    """A staging in a thread; `ended` is what it returned."""

    def __init__(self, lab, sources, options):
        self.clock = BriefClock()
        self.ended = None
        self._thread = threading.Thread(target=self._run, args=(lab, sources, options), daemon=True)
        self._thread.start()

    def _run(self, lab, sources, options):
        with contextlib.suppress(InterruptedError):
            self.ended = lab.stage(*sources, clock=self.clock, **options)

    def see(self, condition):
        """Wait until something is so, while the staging goes on."""
        while not condition():
            assert self._thread.is_alive(), self.ended
            self._thread.join(0.005)

    def finish(self, *, is_stopped=False):
        """Wait for the end; return how it ended."""
        if is_stopped:
            self.clock.stop.set()
        self._thread.join(GENEROUS_SECONDS)
        assert not self._thread.is_alive()
        return self.ended


def read_tree(folder):
    """Return everything below a folder: content and whether a file may be executed, targets of links, folders."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))  # noqa: PTH115 - a Path would tidy it
        elif path.is_dir():
            found[name] = ("folder",)
        else:
            found[name] = ("file", path.read_bytes(), bool(path.stat().st_mode & stat.S_IXUSR))
    return found


def make_tar(entries, mode="w"):
    """Return a tar of entries as `read_tree` has them, in their order."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, entry in entries:
            add_to_tar(archive, name, entry)
    return buffer.getvalue()


def add_to_tar(archive, name, entry):
    info = tarfile.TarInfo(name)
    content = b""
    if entry[0] == "folder":
        info.type, info.mode = tarfile.DIRTYPE, 0o755
    elif entry[0] == "link":
        info.type, info.linkname = tarfile.SYMTYPE, entry[1]
    elif entry[0] == "hard link":
        info.type, info.linkname = tarfile.LNKTYPE, entry[1]
    elif entry[0] == "device":
        info.type = entry[1]
    else:
        content, info.mode = entry[1], 0o755 if entry[2] else 0o644
        info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


def make_zip(entries):
    """Return a zip of entries as `read_tree` has them, in their order."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, entry in entries:
            info = zipfile.ZipInfo(name + ("/" if entry[0] == "folder" else ""))
            info.compress_type = zipfile.ZIP_DEFLATED
            kinds = {"folder": stat.S_IFDIR | 0o755, "link": stat.S_IFLNK | 0o777, "device": stat.S_IFIFO | 0o644}
            mode = kinds.get(entry[0], stat.S_IFREG | (0o755 if entry[-1] is True else 0o644))
            info.external_attr = mode << 16
            archive.writestr(
                info, {"file": lambda e: e[1], "link": lambda e: e[1].encode()}.get(entry[0], lambda _: b"")(entry)
            )
    return buffer.getvalue()


def make_archive(kind, entries):
    """Return an archive in one of the formats."""
    entries = list(entries.items()) if isinstance(entries, dict) else list(entries)
    if kind == "zip":
        return make_zip(entries)
    data = make_tar(entries)
    return data if kind == "tar" else gzip.compress(data, 1)


def make_tree(count=40, size=40_000):
    """Return a tree of files that do not compress, in folders, with a link and something to execute."""
    tree = {"a": ("folder",), "a/deep": ("folder",), "empty": ("folder",)}
    for index in range(count):
        seed = hashlib.shake_256(str(index).encode()).digest(size + index)
        tree[f"a/deep/{index:04d}.bin" if index % 2 else f"{index:04d}.bin"] = ("file", seed, False)
    tree["run.sh"] = ("file", b"#!/bin/sh\n", True)
    tree["a/latest"] = ("link", "../run.sh")
    tree["none"] = ("file", b"", False)
    return tree
