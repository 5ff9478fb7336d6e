"""A web server of this machine that knows ranges, counts what it sends, and can be told to break off."""

import re

from tests.unit.loopback import LoopbackServer


class RangeServer(LoopbackServer):
    """Files by path; `cut` ends every answer after that many bytes, `statuses` are given first."""

    def __init__(self):
        super().__init__()
        self.server.handle_error = lambda *_: None  # A client may leave before the end.
        self.files = {}
        self.tag = '"one"'
        self.cut = None
        self.statuses = []
        self.sent = 0
        self.requests = []

    def answer(self, request, _body):
        self.requests.append(request.headers.get("Range"))
        body = self.files.get(request.path)
        status = self.statuses.pop(0) if self.statuses else 200 if body is not None else 404
        if status != 200:
            request.send_error(status)
            return
        start = self.start_of(request, body)
        if start is not None and start >= len(body):
            request.send_error(416)
            return
        request.send_response(200 if start is None else 206)
        if start is not None:
            request.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        body = body[start or 0 :]
        request.send_header("Content-Length", str(len(body)))
        if self.tag:
            request.send_header("ETag", self.tag)
        request.end_headers()
        piece = body if self.cut is None else body[: self.cut]
        request.wfile.write(piece)
        self.sent += len(piece)
        request.close_connection = True

    def start_of(self, request, body):
        found = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range") or "")
        is_same = request.headers.get("If-Range") in (None, self.tag)
        return int(found[1]) if found and is_same else None
