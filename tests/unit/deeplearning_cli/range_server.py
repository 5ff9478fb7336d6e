"""A web server of this machine that knows ranges, counts what it sends, and can be told to break off."""

import http.server
import re
import threading


class RangeServer:
    """Files by path; `cut` ends every answer after that many bytes, `statuses` are given first."""

    def __init__(self):
        self.files = {}
        self.tag = '"one"'
        self.cut = None
        self.statuses = []
        self.sent = 0
        self.requests = []
        served = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                served.requests.append(self.headers.get("Range"))
                body = served.files.get(self.path)
                status = served.statuses.pop(0) if served.statuses else 200 if body is not None else 404
                if status != 200:
                    self.send_error(status)
                    return
                start = self.start_of(body)
                if start is not None and start >= len(body):
                    self.send_error(416)
                    return
                self.send_response(200 if start is None else 206)
                if start is not None:
                    self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
                body = body[start or 0 :]
                self.send_header("Content-Length", str(len(body)))
                if served.tag:
                    self.send_header("ETag", served.tag)
                self.end_headers()
                piece = body if served.cut is None else body[: served.cut]
                self.wfile.write(piece)
                served.sent += len(piece)
                self.close_connection = True

            def start_of(self, body):
                found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
                is_same = self.headers.get("If-Range") in (None, served.tag)
                return int(found[1]) if found and is_same else None

            def log_message(self, *_arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *_: None  # A client may leave before the end.
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()
