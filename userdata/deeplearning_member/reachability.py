"""Check of the SSH port of another container."""

import socket

SSH_PORT = 22
_CONNECT_SECONDS = 5.0


def responds(host: str) -> bool:
    """Return whether a container accepts connections on the port of SSH."""
    try:
        with socket.create_connection((host, SSH_PORT), timeout=_CONNECT_SECONDS):
            return True
    except OSError:
        return False
