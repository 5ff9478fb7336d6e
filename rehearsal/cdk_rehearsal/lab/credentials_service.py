"""The service from which SDKs in containers take the credentials of their role: boto3 guide, "Container provider"."""

import json
import secrets
import threading
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cdk_rehearsal.lab.metadata_service import render_time, utc_now
from cdk_rehearsal.lab.network import CREDENTIALS_ADDRESS

RELATIVE_URI = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
"""Variable of a container with the path of its credentials."""
_LIFETIME = timedelta(hours=6)


class CredentialsService:
    """
    Serves credentials, each set at a path of its own that nobody can guess, or for a token; begins at once.

    Args:
        address: Where it listens. Default: where containers ask.
    """

    def __init__(self, address: str = CREDENTIALS_ADDRESS) -> None:
        answers = self._answers = dict[tuple[str, str], Mapping[str, str]]()

        class Handler(_Handler):
            credentials = answers

        self._server = ThreadingHTTPServer((address, 80), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="credentials", daemon=True)
        self._thread.start()

    def add(self, access_key_id: str, secret_access_key: str, session_token: str) -> str:
        """Serve credentials from now on, and return their path."""
        path = f"/v2/credentials/{secrets.token_urlsafe()}"
        self._answers[path, ""] = _describe(access_key_id, secret_access_key, session_token)
        return path

    def add_for_token(self, path: str, access_key_id: str, secret_access_key: str, session_token: str) -> str:
        """Serve credentials from now on at a path to whoever sends a token, and return the token."""
        token = secrets.token_urlsafe()
        self._answers[path, token] = _describe(access_key_id, secret_access_key, session_token)
        return token

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _describe(access_key_id: str, secret_access_key: str, session_token: str) -> dict[str, str]:
    return {"AccessKeyId": access_key_id, "SecretAccessKey": secret_access_key, "Token": session_token}


class _Handler(BaseHTTPRequestHandler):
    credentials: Mapping[tuple[str, str], Mapping[str, str]]

    def do_GET(self) -> None:
        found = self.credentials.get((self.path, self.headers.get("Authorization", "")))
        answer = {} if found is None else {**found, "Expiration": render_time(utc_now() + _LIFETIME)}
        body = json.dumps(answer).encode()
        self.send_response(HTTPStatus.NOT_FOUND if found is None else HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Keep quiet: each SDK asks."""
