"""Webhook by which a real API server finds out who sent a token."""

import http.server
import json
import threading

from cdk_rehearsal.kubernetes.users import Review


class Webhook(http.server.ThreadingHTTPServer):
    """
    Answers token reviews on this machine.

    Args:
        review: Finds out who sent a token.
    """

    daemon_threads = True

    def __init__(self, review: Review) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.review = review
        threading.Thread(target=self.serve_forever, name="token-review", daemon=True).start()

    @property
    def url(self) -> str:
        """URL for the API server."""
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def stop(self) -> None:
        """End."""
        self.shutdown()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Webhook

    def log_message(self, *_words: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        user = self.server.review(asked["spec"]["token"])
        status: dict[str, object] = {"authenticated": False}
        if user is not None:
            status = {"authenticated": True, "user": {"username": user.name, "groups": [*user.groups]}}
        body = json.dumps({"apiVersion": asked["apiVersion"], "kind": "TokenReview", "status": status}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
