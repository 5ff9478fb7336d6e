"""
The lab's network: a bridge, and for every node and container a network namespace with one interface.

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

METADATA_ADDRESS = "169.254.169.254"
CREDENTIALS_ADDRESS = "169.254.170.2"
"""Address of the router, too: there botocore asks for the credentials of a container's role."""
POD_IDENTITY_ADDRESS = "169.254.170.23"
"""Likewise in a pod (EKS user guide, "Learn how EKS Pod Identity grants pods access to AWS services")."""
_BRIDGE = "rehearsal0"
_METADATA = "metadata0"
"""A node's interface to its metadata service, without an address."""
_NOBODY = "02:ff:ff:ff:ff:ff"
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Link:
    """A network namespace by its descriptor, and its interface on the bridge."""

    namespace: int
    interface: str

    @property
    def namespace_path(self) -> str:
        """Path by which other programs enter the namespace, while this process lives."""
        return _name_namespace(self.namespace)

    def set_up(self, *, up: bool) -> None:
        """Let all packets through, or drop them all."""
        run_ip([f"link set {self.interface} {'up' if up else 'down'}"])

    def drop(self, address: str) -> None:
        """Drop what is sent to an address from now on: it goes to a hardware address that nothing has."""
        lines = [
            f"route replace {address}/32 dev eth0",
            f"neigh replace {address} lladdr {_NOBODY} dev eth0 nud permanent",
        ]
        run_ip(lines, "nsenter", f"--net={self.namespace_path}", "--")


@dataclass(frozen=True)
class NodeLink(Link):
    """
    A node's link, with its metadata service.

    The service has a namespace of its own, so that the node can serve at any port of any address of its own, and
    reaches the service whatever becomes of its other packets.
    """

    service: int
    metadata_socket: socket.socket


class Network:
    """
    The bridge and its router, through which nodes in other subnets are reached, as in a VPC.

    RehearsalError when the gateway, the router's address and where nodes reach this process, is not an IPv4 address.
    """

    def __init__(self, gateway: str) -> None:
        try:
            self.gateway = str(ipaddress.IPv4Address(gateway))
        except ValueError as error:
            raise RehearsalError(f"gateway must be an IPv4 address, got {gateway!r}") from error
        self._numbers = itertools.count()

    def open(self) -> None:
        """Make the bridge, in this process's network namespace."""
        run_ip(
            [
                "link set lo up",
                f"link add {_BRIDGE} type bridge",
                f"addr add {self.gateway}/32 dev {_BRIDGE}",
                f"addr add {CREDENTIALS_ADDRESS}/32 dev {_BRIDGE}",
                f"addr add {POD_IDENTITY_ADDRESS}/32 dev {_BRIDGE}",
                f"link set {_BRIDGE} up",
            ]
        )
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        Path(f"/proc/sys/net/ipv4/conf/{_BRIDGE}/send_redirects").write_text("0")

    def add_node(self, address: str, prefix_length: int) -> NodeLink:
        """Return a node's link: a namespace with its interface up, and a listening socket on the metadata address."""
        service = _make_namespace(["link set lo up"])
        path = _name_namespace(service)
        route = f"route add {METADATA_ADDRESS}/32 dev {_METADATA} src {address}"
        add = f"link add {_METADATA} type veth peer name node netns {path}"
        pair = [add, f"link set {_METADATA} addrgenmode none", f"link set {_METADATA} up", route]
        link = self._add(address, prefix_length, pair)
        there = [f"addr add {METADATA_ADDRESS}/32 dev node", "link set node up", f"route add {address}/32 dev node"]
        run_ip(there, "nsenter", f"--net={path}", "--")
        return NodeLink(link.namespace, link.interface, service, _listen(service))

    def add_container(self, address: str, prefix_length: int) -> Link:
        """Return a container's link: a namespace with its interface up, and nothing on the metadata address."""
        return self._add(address, prefix_length, [])

    def answer_at(self, address: str) -> None:
        """Let this process answer at one more address."""
        run_ip([f"addr add {address}/32 dev {_BRIDGE}"])

    def remove(self, link: Link, address: str) -> None:
        """Take a link away: from now on nothing answers at its address."""
        run_ip([f"link del {link.interface}", f"route del {address}/32 dev {_BRIDGE}"])
        if isinstance(link, NodeLink):
            link.metadata_socket.close()
            os.close(link.service)
        os.close(link.namespace)

    def _add(self, address: str, prefix_length: int, own: list[str]) -> Link:
        interface = f"node{next(self._numbers)}"
        inside = [
            "link set lo up",
            f"link add eth0 address {mac_address(address)} type veth peer name {interface} netns {os.getpid()}",
            f"addr add {address}/{prefix_length} dev eth0",
            "link set eth0 up",
            f"route add {self.gateway}/32 dev eth0",
            f"route add default via {self.gateway} dev eth0",
            *own,
        ]
        namespace = _make_namespace(inside)
        run_ip([f"link set {interface} master {_BRIDGE} up", f"route add {address}/32 dev {_BRIDGE}"])
        return Link(namespace, interface)


def _name_namespace(descriptor: int) -> str:
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def mac_address(address: str) -> str:
    """Return the hardware address of the interface with an IPv4 address."""
    return "02:00:" + ":".join(f"{byte:02x}" for byte in ipaddress.IPv4Address(address).packed)


def run_ip(lines: list[str], *prefix: str) -> None:
    """Run lines of iproute2 as one batch, behind the words of a prefix; RehearsalError when one failed."""
    text = "\n".join(lines) + "\n"
    command = [*prefix, "ip", "-batch", "-"]
    answer = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise RehearsalError(f"ip failed: {answer.stderr.strip()}; batch: {'; '.join(lines)}")


def _make_namespace(inside: list[str]) -> int:
    """Make a network namespace in a thread of its own, so that no other thread ever leaves the lab's."""

    def make() -> int:
        if _libc.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "unshare of the network namespace failed")
        run_ip(inside)
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    try:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(make).result()
    except (OSError, RehearsalError) as error:
        raise RehearsalError(f"a network namespace could not be made: {error}") from error


def _listen(namespace: int) -> socket.socket:
    """Listen on the metadata address of a namespace, in a thread of its own."""

    def listen() -> socket.socket:
        if _libc.setns(namespace, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns to the network namespace failed")
        return socket.create_server((METADATA_ADDRESS, 80), backlog=64)

    try:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(listen).result()
    except OSError as error:
        raise RehearsalError(f"nothing can listen on a metadata address: {error}") from error
