"""A web server of this machine that knows ranges, records requests, and can break off its responses or stall."""

import re

from tests.real_time import GENEROUS_SECONDS
from tests.unit.loopback import LoopbackServer


class RangeServer(LoopbackServer):
    """
    Files by path.

    `cut` ends every response after that many bytes, and with `stall` the connection stays open until the event. Each of
    `statuses` is sent once, instead of a file. `requests` has the path and the range of each request.
    """

    def __init__(self):
        super().__init__()
        self.server.handle_error = lambda *_: None  # A client may leave before the end.
        self.files = {}
        self.has_ranges = True
        self.cut = None
        self.stall = None
        self.statuses = []
        self.sent = 0
        self.requests = []

    def answer(self, request, _body):
        cut, stall = self.cut, self.stall
        limits = request.headers.get("Range") or ""
        self.requests.append((request.path, limits))
        body = self.files.get(request.path)
        status = self.statuses.pop(0) if self.statuses else 200 if body is not None else 404
        if status != 200:
            request.send_error(status)
            return
        found = re.fullmatch(r"bytes=(\d+)-", limits) if self.has_ranges else None
        start = int(found[1]) if found else 0
        if found and start >= len(body):
            request.send_error(416)
            return
        request.send_response(206 if found else 200)
        if found:
            request.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        body = body[start:]
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        piece = body[:cut]
        request.wfile.write(piece)
        request.wfile.flush()
        self.sent += len(piece)
        if stall:
            stall.wait(GENEROUS_SECONDS)
        request.close_connection = True
