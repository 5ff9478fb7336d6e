"""Docker's login to Amazon ECR, with the rights of the node's role."""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from deeplearning_node.aws_clients import AwsClients, AwsFailure, call_for
from deeplearning_node.deadline import Clock
from deeplearning_provision.steps import ProvisionFailure

_ECR = re.compile(r"(?P<host>[0-9]{12}\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.[a-z.]+)/")
"""Registries of an account in one region, by either address (Amazon ECR user guide, "Amazon ECR endpoints")."""
LOGIN_SECONDS = 120


@contextmanager
def log_in(image: str, clock: Clock) -> Iterator[Mapping[str, str]]:
    """
    Yield the variables with which docker may pull an image: none for a registry other than ECR.

    The token is valid for 12 hours and stays in a folder that is removed afterwards (Amazon ECR user guide, "Private
    registry authentication").

    Raises:
        ProvisionFailure: ECR refuses the role, or does not respond.
    """
    found = _ECR.match(image)
    if found is None:
        yield {}
        return
    clients = AwsClients(found["region"])
    try:
        answer = call_for(clock, LOGIN_SECONDS, clients.ecr.get_authorization_token)
    except AwsFailure as error:
        remedy = "allow the nodes to pull: call repository.grant_pull(cluster), and deploy"
        cause = f"could not log in to {found['host']}: {error.cause}"
        raise ProvisionFailure(cause, remedy if error.is_denied else error.remedy, is_final=error.is_denied) from error
    token = answer["authorizationData"][0]["authorizationToken"]
    with tempfile.TemporaryDirectory() as folder:  # Only its owner can read it.
        logins = {"auths": {found["host"]: {"auth": token}}}
        (Path(folder) / "config.json").write_text(json.dumps(logins), encoding="utf-8")
        yield {"DOCKER_CONFIG": folder}
