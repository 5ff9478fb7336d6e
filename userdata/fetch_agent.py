"""
Download of the agent from S3, or report of a failure before it runs; standard library, Python 3.9.

    fetch_agent.py BUCKET KEY SHA256 REGION TARGET    replace TARGET by the unpacked zip, unless it is there
    fetch_agent.py --failure SETTINGS LOG CAUSE       signal (master) or report (worker) it
"""

import hashlib
import hmac
import http.client
import io
import json
import os
import shutil
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ATTEMPTS = 7
IMDS = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254").rstrip("/") + "/latest/"
ROLE = "meta-data/iam/security-credentials/"
WEB = urllib.request.build_opener()


def send(url: str, headers: Any, method: str = "GET", body: Any = None) -> bytes:
    """Return the body of a response; OSError for an error status."""
    request, what = urllib.request.Request(url, data=body, headers=headers, method=method), url.partition("?")[0]
    if url.partition(":")[0] not in ("http", "https"):
        raise OSError(f"{what} must be HTTP or HTTPS")
    try:
        with WEB.open(request, timeout=30) as response:
            return bytes(response.read())
    except urllib.error.HTTPError as error:
        said = " ".join(error.read(2000).decode("utf-8", "replace").split())[:300]
        raise OSError(f"{method} {what}: {error.code} {error.reason}: {said}") from error
    except (OSError, http.client.HTTPException) as error:
        raise OSError(f"{method} {what}: no response: {error!r}") from error


def retry(action: Callable[[], Any], sleep: Any = time.sleep) -> Any:
    """Run an action, with retries for a minute after an OSError: IAM propagates a new role."""
    for attempt in range(ATTEMPTS - 1):
        try:
            return action()
        except OSError:
            sleep(2**attempt)
    return action()


def read_metadata(*paths: str) -> list[str]:
    """Return texts of instance metadata (version 2)."""
    token = send(IMDS + "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "300"}, "PUT", b"")
    return [send(IMDS + path, {"X-aws-ec2-metadata-token": token.decode()}).decode().strip() for path in paths]


def read_credentials() -> tuple[str, str, str]:
    """Return the credentials of the instance's role."""
    role = read_metadata(ROLE)[0].split("\n")[0]
    try:
        document = json.loads(read_metadata(ROLE + role)[0])
        return document["AccessKeyId"], document["SecretAccessKey"], document["Token"]
    except (KeyError, ValueError) as error:
        raise OSError(f"instance metadata has no credentials of role {role!r} yet: {error!r}") from error


def sign(
    method: str, url: str, region: str, service: str, credentials: Any, now: datetime, body: bytes = b"", **headers: str
) -> dict[str, str]:
    """Return headers with AWS Signature Version 4; an underscore in a name stands for a hyphen."""
    access_key, secret_key, token = credentials
    parts, stamp = urllib.parse.urlsplit(url), now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    digest = hashlib.sha256(body).hexdigest()
    signed = {"host": parts.netloc, "x-amz-date": stamp, "x-amz-security-token": token}
    signed.update({name.replace("_", "-"): value for name, value in headers.items()})
    if service == "s3":
        signed["x-amz-content-sha256"] = digest
    names = ";".join(sorted(signed))
    lines = [method, parts.path, "", *(f"{name}:{signed[name]}" for name in sorted(signed)), "", names, digest]
    canonical = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    key = b"AWS4" + secret_key.encode()
    for part in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{canonical}"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    credential = f"AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
    return {**signed, "Authorization": credential}


def object_url(bucket: str, key: str, endpoint: str, domain: str) -> str:
    """Return an object's URL: virtual-hosted, or by path at an endpoint and where TLS needs it."""
    path = "/" + urllib.parse.quote(key, safe="/-_.~")
    if endpoint or "." in bucket:
        return (endpoint or f"https://s3.{domain}").rstrip("/") + f"/{bucket}{path}"
    return f"https://{bucket}.s3.{domain}{path}"


def fetch(bucket: str, key: str, sha256: str, region: str) -> bytes:
    """Return the bytes of an object, verified by their digest."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    suffix = "" if endpoint else read_metadata("meta-data/services/domain")[0]
    url = object_url(bucket, key, endpoint, f"{region}.{suffix}")
    data = send(url, sign("GET", url, region, "s3", read_credentials(), datetime.now(timezone.utc)))
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise ValueError(f"sha256 of s3://{bucket}/{key} must be {sha256}, got {found}; deploy again")
    return data


def unpack(data: bytes, sha256: str, target: Path) -> None:
    """Replace a folder by the contents of a zip, atomically."""
    staging = Path(tempfile.mkdtemp(dir=target.parent))
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                if name.startswith("/") or ".." in name.split("/"):
                    raise ValueError(f"agent zip must contain only paths below it, got {name!r}")
            archive.extractall(staging)
        (staging / ".sha256").write_text(sha256)
        staging.chmod(0o755)
        shutil.rmtree(target, ignore_errors=True)
        staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def report_failure(settings: Any, log: str, cause: str) -> None:
    """Send cause and last lines: the master to CloudFormation, a worker to the master."""
    tail = " | ".join(Path(log).read_text(errors="replace")[-2000:].strip().split("\n")[-12:])
    cluster, queue, url = settings["cluster"], settings["report_queue_url"], settings["signal_url"]
    cause = f"bootstrap failed on {settings['role']} {os.uname().nodename}: {cause}"
    reason = f"{cause}; last lines: {tail}"
    if len(reason) > 1000:
        reason = f"{reason[:300]} ... {reason[-690:]}"
    print(reason)
    if url:
        signal = {"Status": "FAILURE", "Reason": reason, "UniqueId": cluster, "Data": reason}
        send(url, {"Content-Type": ""}, "PUT", json.dumps(signal).encode())
        return
    report = {"kind": "report", "cluster": cluster, "stage": "failed", "generation": 0}
    report["reason"] = {"cause": cause[:1000], "output": tail[-1000:]}
    report["instance_id"] = read_metadata("meta-data/instance-id")[0]
    body = json.dumps({"QueueUrl": queue, "MessageBody": json.dumps(report)}).encode()
    url = (os.environ.get("AWS_ENDPOINT_URL") or "/".join(queue.split("/")[:3])).rstrip("/") + "/"
    kind = {"content_type": "application/x-amz-json-1.0", "x_amz_target": "AmazonSQS.SendMessage"}
    now = datetime.now(timezone.utc)
    send(url, sign("POST", url, settings["region"], "sqs", read_credentials(), now, body, **kind), "POST", body)


def main(arguments: list[str]) -> None:
    """Run one of the two commands."""
    if arguments[0] == "--failure":
        settings = json.loads(Path(arguments[1]).read_text())
        retry(lambda: report_failure(settings, *arguments[2:]))
        return
    bucket, key, sha256, region, target = arguments
    mark = Path(target) / ".sha256"
    if not mark.exists() or mark.read_text() != sha256:
        unpack(retry(lambda: fetch(bucket, key, sha256, region)), sha256, Path(target))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        sys.exit(f"fetch_agent: {error}")
