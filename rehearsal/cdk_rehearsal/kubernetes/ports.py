"""Ports of this machine."""

import socket


def choose_port(address: str) -> int:
    """Return a port of an address that nobody uses."""
    with socket.create_server((address, 0)) as place:
        return int(place.getsockname()[1])
