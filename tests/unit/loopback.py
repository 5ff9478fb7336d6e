"""Web servers of this machine that stand in for a service."""

import http.server
import json
import threading


class LoopbackServer:
    """Serves on a free port of loopback; a subclass's `answer` takes each request, with its body."""

    protocol_version = "HTTP/1.0"

    def __init__(self):
        served = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = self.protocol_version

            def take(self):
                served.answer(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = take  # noqa: N815 - the names that http.server calls

            def log_message(self, *_arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def respond(request, status=200, body=b""):
    """Send a whole answer."""
    request.send_response(status)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


class SignalServer(LoopbackServer):
    """
    Takes what is put to a presigned URL of CloudFormation's.

    `requests` has the path, content type and document of each, `bodies` the documents that were taken: those answered
    with 200. `status` is the answer.
    """

    def __init__(self):
        super().__init__()
        self.url += "/arn%3Aaws?X-Amz-Signature=a%2Fb"
        self.status = 200
        self.requests, self.bodies = [], []

    def answer(self, request, body):
        document = json.loads(body)
        self.requests.append((request.path, request.headers["Content-Type"], document))
        if self.status == 200:
            self.bodies.append(document)
        respond(request, self.status)
