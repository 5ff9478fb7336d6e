"""
Requests over HTTP and HTTPS, without urllib's other schemes.

An address often comes from a setting or a response, which must not make a program read a file.
"""

import urllib.request
from typing import Any

_HANDLERS = (
    urllib.request.ProxyHandler,
    urllib.request.UnknownHandler,
    urllib.request.HTTPHandler,
    urllib.request.HTTPSHandler,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPRedirectHandler,
    urllib.request.HTTPErrorProcessor,
)


def open_address(request: urllib.request.Request, timeout_seconds: float) -> Any:
    """Return the response to a request over HTTP or HTTPS, which the caller closes; OSError without success."""
    opener = urllib.request.OpenerDirector()
    for handler in _HANDLERS:
        opener.add_handler(handler())
    return opener.open(request, timeout=timeout_seconds)
