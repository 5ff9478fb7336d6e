"""
Start of the agent on an instance of EMR, from the release in an SSM parameter; standard library, Python 3.9.

    prepare_member.py PARAMETER REGION    write the settings, fetch the agent beside them, and let it prepare the node

It is part of the bootstrap action: see there what a change of it replaces.
"""

import json
import os
import sys
import zipfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import fetch_agent

HOME = Path(__file__).parent
KIND = {"content_type": "application/x-amz-json-1.1", "x_amz_target": "AmazonSSM.GetParameter"}


def read_release(parameter: str, region: str) -> Any:
    """Return the release: the agent's place and digest, its interpreter, and the settings of the members."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    domain = "" if endpoint else fetch_agent.read_metadata("meta-data/services/domain")[0]
    url = (endpoint or f"https://ssm.{region}.{domain}").rstrip("/") + "/"
    body = json.dumps({"Name": parameter}).encode()
    credentials, now = fetch_agent.read_credentials(), datetime.now(timezone.utc)
    headers = fetch_agent.sign("POST", url, region, "ssm", credentials, now, body, **KIND)
    answer = json.loads(fetch_agent.send(url, headers, "POST", body))
    return json.loads(answer["Parameter"]["Value"])


def main(parameter: str, region: str) -> None:
    """Replace this process by the agent."""
    release = fetch_agent.retry(lambda: read_release(parameter, region))
    agent, interpreter, target = release["agent"], release["interpreter"], HOME / "agent"
    if not Path(interpreter).exists():
        raise ValueError(f"the image has no {interpreter}; take a release of EMR or an image that has it")
    with open(HOME / "settings.json", "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        json.dump(release["settings"], file)
    fetch_agent.main([agent["bucket"], agent["key"], agent["sha256"], region, str(target)])
    os.chdir(target)
    os.execv(interpreter, [interpreter, "-m", "deeplearning_member", "prepare"])  # noqa: S606 - it is the agent


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        sys.exit(f"prepare_member: {error}")
