"""
Stands in for the SSM agent: registers, waits on its control channel, and opens a data channel for each session.

Signs its calls with the instance role's credentials, as the agent does, so that the role's grants for Session Manager
are used. It carries no shell: whoever started the session enters the node by another way.
"""

import hashlib
import hmac
import http.client
import json
import os
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlsplit

METADATA_HOST = "169.254.169.254"
_ROLE = "/latest/meta-data/iam/security-credentials/"
_ANSWER_SECONDS = 30
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_RENEWAL = timedelta(minutes=5)
"""Before credentials expire."""


class AgentError(Exception):
    """A call was not answered as it should be."""


class Caller:
    """
    Calls AWS as the instance's role, whose credentials are read again only when they are about to expire.

    The agent's SDK keeps them too: a slow metadata service delays its first call alone.
    """

    def __init__(self, endpoint: str) -> None:
        """Read nothing yet."""
        self._host = urlsplit(endpoint).netloc
        self._region = ""
        self._credentials: Mapping[str, Any] = {}
        self._renew = datetime.min.replace(tzinfo=timezone.utc)

    def read_role(self, now: datetime) -> tuple[str, Mapping[str, Any]]:
        """Return region and credentials."""
        if now >= self._renew:
            self._region = read_metadata("/latest/meta-data/placement/region")
            name = read_metadata(_ROLE).partition("\n")[0]
            self._credentials = json.loads(read_metadata(_ROLE + name))
            # Python 3.10 reads no "Z".
            end = datetime.fromisoformat(self._credentials["Expiration"].replace("Z", "+00:00"))
            self._renew = end - _RENEWAL
        return self._region, self._credentials

    def call(
        self,
        service: str,
        method: str,
        path: str,
        body: "str | bytes" = "",
        *,
        headers: Mapping[str, str] | None = None,
        timeout: "float | None" = _ANSWER_SECONDS,
    ) -> http.client.HTTPResponse:
        """Return the answer of a signed call; with no time-out for one that stays open."""
        now = datetime.now(timezone.utc)
        region, credentials = self.read_role(now)
        signature = sign(
            method, self._host, path, body, service=service, region=region, credentials=credentials, now=now
        )
        connection = http.client.HTTPConnection(self._host, timeout=timeout)
        connection.request(method, path, body=body or None, headers={**signature, **(headers or {})})
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise AgentError(f"{service} answers {answer.status}: {answer.read(300)!r}")
        return answer


def main() -> int:
    """Serve sessions for as long as the instance runs; return at once where the image does not say where AWS is."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    pause, caller = _FIRST_PAUSE, Caller(endpoint)
    while endpoint:
        try:
            for session_id in connect(caller):
                pause = _FIRST_PAUSE
                if session_id:
                    open_session(caller, session_id)
        except (OSError, http.client.HTTPException, ValueError, KeyError, AgentError):
            pass  # no role yet, AWS does not answer, or it refuses: the agent goes on trying
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return 0


def connect(caller: Caller) -> Iterator[str]:
    """Register, open the control channel, and return the sessions as they come; an empty text says that it is open."""
    instance_id = read_metadata("/latest/meta-data/instance-id")
    information = {
        "InstanceId": instance_id,
        "AgentName": "amazon-ssm-agent",
        "AgentStatus": "Active",
        "AgentVersion": "3.3.0.0",
        "PlatformType": "Linux",
    }
    target = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "AmazonSSM.UpdateInstanceInformation"}
    caller.call("ssm", "POST", "/", json.dumps(information), headers=target).read()
    path = f"/v1/control-channel/{instance_id}"
    caller.call("ssmmessages", "POST", path, '{"MessageSchemaVersion": "1.0"}').read()
    channel = caller.call("ssmmessages", "GET", path, timeout=None)
    while line := channel.readline():
        yield json.loads(line)["SessionId"] if line.strip() else ""


def open_session(caller: Caller, session_id: str) -> None:
    """Open the data channel of a session."""
    path = f"/v1/data-channel/{session_id}"
    caller.call("ssmmessages", "POST", path, '{"MessageSchemaVersion": "1.0"}').read()
    caller.call("ssmmessages", "GET", path).read()


def read_metadata(path: str) -> str:
    """Return a text of the instance metadata service (version 2)."""
    connection = http.client.HTTPConnection(METADATA_HOST, timeout=_ANSWER_SECONDS)
    try:
        connection.request("PUT", "/latest/api/token", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        token = _read(connection)
        connection.request("GET", path, headers={"X-aws-ec2-metadata-token": token})
        return _read(connection)
    finally:
        connection.close()


def sign(
    method: str,
    host: str,
    path: str,
    body: "str | bytes",
    *,
    service: str,
    region: str,
    credentials: Mapping[str, Any],
    now: datetime,
) -> dict[str, str]:
    """Return the headers of AWS Signature Version 4 for a request without a query."""
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    digest = hashlib.sha256(body.encode() if isinstance(body, str) else body).hexdigest()
    signed = {"host": host, "x-amz-date": stamp, "x-amz-security-token": str(credentials["Token"])}
    names = ";".join(signed)
    canonical = "\n".join([method, path, "", *(f"{name}:{value}" for name, value in signed.items()), "", names, digest])
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = b"AWS4" + str(credentials["SecretAccessKey"]).encode()
    for part in (*scope.split("/"), text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    credential = f"{credentials['AccessKeyId']}/{scope}"
    authorization = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={key.hex()}"
    return {"X-Amz-Date": stamp, "X-Amz-Security-Token": signed["x-amz-security-token"], "Authorization": authorization}


def _read(connection: http.client.HTTPConnection) -> str:
    answer = connection.getresponse()
    text = answer.read().decode()
    if answer.status != http.client.OK:
        raise AgentError(f"instance metadata answers {answer.status}")
    return text.strip()
