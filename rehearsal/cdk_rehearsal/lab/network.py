"""
The lab's network: a bridge, and for every node a network namespace with one interface.

A namespace is held by an open descriptor, never by a file, so that it ends with this process.
"""

import ctypes
import ipaddress
import itertools
import os
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cdk_rehearsal.errors import RehearsalError

METADATA_ADDRESS, CREDENTIALS_ADDRESS = "169.254.169.254", "169.254.170.2"
"""Link-local addresses of the metadata service of an instance, and of the credentials of a container."""
_BRIDGE = "rehearsal0"
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class NodeLink:
    """A network namespace by its descriptor, its interface on the bridge, and the listener of its own service."""

    namespace: int
    interface: str
    service_socket: socket.socket

    @property
    def namespace_path(self) -> str:
        """Path by which other programs enter the namespace, while this process lives."""
        return f"/proc/{os.getpid()}/fd/{self.namespace}"

    def set_up(self, *, up: bool) -> None:
        """Let the node's packets through, or drop them all."""
        run_ip([f"link set {self.interface} {'up' if up else 'down'}"])


class Network:
    """
    The bridge and its router, through which nodes in other subnets are reached, as in a VPC.

    RehearsalError when the gateway, the router's address and where nodes reach this process, is not an IPv4 address.
    """

    def __init__(self, gateway: str) -> None:
        try:
            self._gateway = str(ipaddress.IPv4Address(gateway))
        except ValueError as error:
            raise RehearsalError(f"gateway must be an IPv4 address, got {gateway!r}") from error
        self._numbers = itertools.count()

    def open(self) -> None:
        """Make the bridge, in this process's network namespace."""
        run_ip(
            [
                "link set lo up",
                f"link add {_BRIDGE} type bridge",
                f"addr add {self._gateway}/32 dev {_BRIDGE}",
                f"link set {_BRIDGE} up",
            ]
        )
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        Path(f"/proc/sys/net/ipv4/conf/{_BRIDGE}/send_redirects").write_text("0")

    def add_node(self, address: str, prefix_length: int, service: str = METADATA_ADDRESS) -> NodeLink:
        """Return a link: a namespace with its interface up, and a listening socket on the address of a service."""
        interface = f"node{next(self._numbers)}"
        inside = [
            "link set lo up",
            f"addr add {service}/32 dev lo",
            f"link add eth0 address {mac_address(address)} type veth peer name {interface} netns {os.getpid()}",
            f"addr add {address}/{prefix_length} dev eth0",
            "link set eth0 up",
            f"route add {self._gateway}/32 dev eth0",
            f"route add default via {self._gateway} dev eth0",
        ]
        namespace, service_socket = _make_namespace(inside, service)
        run_ip([f"link set {interface} master {_BRIDGE} up", f"route add {address}/32 dev {_BRIDGE}"])
        return NodeLink(namespace, interface, service_socket)

    def remove_node(self, link: NodeLink, address: str) -> None:
        """Take a node's link away: from now on nothing answers at its address."""
        run_ip([f"link del {link.interface}", f"route del {address}/32 dev {_BRIDGE}"])
        link.service_socket.close()
        os.close(link.namespace)


def mac_address(address: str) -> str:
    """Return the hardware address of the interface with an IPv4 address."""
    return "02:00:" + ":".join(f"{byte:02x}" for byte in ipaddress.IPv4Address(address).packed)


def run_ip(lines: list[str]) -> None:
    """Run lines of iproute2 as one batch; RehearsalError when one failed."""
    text = "\n".join(lines) + "\n"
    answer = subprocess.run(["ip", "-batch", "-"], input=text, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise RehearsalError(f"ip failed: {answer.stderr.strip()}; batch: {'; '.join(lines)}")


def _make_namespace(inside: list[str], service: str) -> tuple[int, socket.socket]:
    """Make a network namespace in a thread of its own, so that no other thread ever leaves the lab's."""

    def make() -> tuple[int, socket.socket]:
        if _libc.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "unshare of the network namespace failed")
        run_ip(inside)
        listener = socket.create_server((service, 80), backlog=64)
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC), listener

    try:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(make).result()
    except (OSError, RehearsalError) as error:
        raise RehearsalError(f"a node's network namespace could not be made: {error}") from error
