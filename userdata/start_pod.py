"""
Start of a pod on EKS: download of the agent with the pod's identity; standard library, Python 3.9.

    start_pod.py BUCKET KEY SHA256 REGION TARGET    unpack the zip to TARGET, beside this program and fetch_agent.py
"""

import hashlib
import json
import os
import sys
import zipfile
from datetime import datetime, timezone
from pathlib import Path

import fetch_agent


def read_credentials() -> tuple[str, str, str]:
    """Return the pod's credentials: EKS user guide, "Learn how EKS Pod Identity grants pods access to AWS services"."""
    token = Path(os.environ["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]).read_text().strip()
    answer = fetch_agent.send(os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"], {"Authorization": token})
    document = json.loads(answer)
    return document["AccessKeyId"], document["SecretAccessKey"], document["Token"]


def fetch(bucket: str, key: str, region: str) -> bytes:
    """Return the bytes of an object."""
    # Pods do not reach instance metadata, which names the domain of the services on an instance.
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    url = fetch_agent.object_url(bucket, key, os.environ.get("AWS_ENDPOINT_URL", ""), f"{region}.{domain}")
    headers = fetch_agent.sign("GET", url, region, "s3", read_credentials(), datetime.now(timezone.utc))
    return fetch_agent.send(url, headers)


def main(bucket: str, key: str, sha256: str, region: str, target: str) -> None:
    """Download and unpack the zip, whose digest must be as declared."""
    data = fetch_agent.retry(lambda: fetch(bucket, key, region))
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise ValueError(f"sha256 of s3://{bucket}/{key} must be {sha256}, got {found}; deploy again")
    fetch_agent.unpack(data, sha256, Path(target))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        sys.exit(f"start_pod: {error!r}" if isinstance(error, KeyError) else f"start_pod: {error}")
