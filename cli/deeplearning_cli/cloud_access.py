"""Access to the AWS account that a command reads: the user's, or that of a kept rehearsal."""

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeplearning_cli.errors import UnavailableError, require_modules
from deeplearning_view.aws_responses import AwsResponses

if TYPE_CHECKING:  # only commands about a rehearsal import it
    from cdk_rehearsal.run.lab_record import LabRecord

_READ_SECONDS = 20
_ATTEMPTS = 4


@dataclass(frozen=True)
class CloudAccess:
    """
    Access to an AWS account, or to a rehearsal.

    Attributes:
        clients: Returns the client of a service.
        region: Its region.
        stack: Name of the stack; None for its only cluster.
        profile: Profile of the AWS CLI; None for the default.
        lab: The rehearsal; None for the user's account.
    """

    clients: Callable[[str], Any]
    region: str
    stack: str | None
    profile: str | None = None
    lab: "LabRecord | None" = None

    def read(self, *, with_lines: bool = False) -> AwsResponses:
        """
        Read the cluster.

        Raises:
            ViewError: The stack cannot be read.
        """
        from deeplearning_view.aws_reader import read_responses  # noqa: PLC0415 - imports botocore

        return read_responses(self.clients, self.region, self.stack, with_lines=with_lines)


def open_cloud(arguments: argparse.Namespace) -> CloudAccess:
    """
    Open the account or rehearsal that the arguments name.

    Effects: for a rehearsal, this process enters the lab's network and drops the user's AWS settings.

    Raises:
        UnavailableError: It cannot be opened; the message names the remedy.
    """
    require_modules("boto3", "rich", extra="operate")
    if arguments.rehearsal is None:
        return _open_account(arguments)
    if arguments.profile or arguments.region:
        raise UnavailableError("--profile and --region must be left out with --rehearsal, which has its own")
    return _open_rehearsal(Path(arguments.rehearsal).resolve(), arguments.stack)


def _open_account(arguments: argparse.Namespace) -> CloudAccess:
    """
    Open the user's account.

    AWS_REGION takes precedence over AWS_DEFAULT_REGION and the profile, as in the AWS CLI and most SDKs
    (https://docs.aws.amazon.com/sdkref/latest/guide/feature-region.html); boto3 reads only AWS_DEFAULT_REGION
    (https://github.com/boto/boto3/issues/3620).
    """
    import boto3  # noqa: PLC0415 - slow, and only these commands need it
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415

    try:
        session = boto3.session.Session(
            profile_name=arguments.profile, region_name=arguments.region or os.environ.get("AWS_REGION") or None
        )
    except BotoCoreError as error:
        raise UnavailableError(f"{error}; choose another --profile, or run: aws configure") from error
    region = session.region_name
    if region is None:
        raise UnavailableError("the region must be set, got none; give --region or set AWS_REGION")
    return CloudAccess(_make_clients(session, region), region, arguments.stack, arguments.profile)


@contextmanager
def map_rehearsal_errors() -> Iterator[None]:
    """Raise an error of a kept rehearsal as UnavailableError."""
    from cdk_rehearsal.errors import RehearsalError  # noqa: PLC0415 - only commands about a rehearsal import it

    try:
        yield
    except RehearsalError as error:
        raise UnavailableError(str(error)) from error


def _open_rehearsal(out: Path, stack: str | None) -> CloudAccess:
    from cdk_rehearsal.run.lab_record import LabRecord  # noqa: PLC0415 - only commands about a rehearsal import it

    with map_rehearsal_errors():
        lab = LabRecord.read(out)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    # Calls go to the lab with any settings of the user; its network reaches nothing else.
    os.environ |= {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    with map_rehearsal_errors():
        lab.enter_network()
    import boto3  # noqa: PLC0415 - after the environment is clean

    session = boto3.session.Session(lab.access_key_id, lab.secret_access_key, region_name=lab.region)
    return CloudAccess(_make_clients(session, lab.region, lab.endpoint), lab.region, stack or lab.stack, lab=lab)


def _make_clients(session: Any, region: str, endpoint: str | None = None) -> Callable[[str], Any]:
    from botocore.config import Config  # noqa: PLC0415 - slow, and only these commands need it

    config = Config(
        retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
        read_timeout=_READ_SECONDS,
        connect_timeout=_READ_SECONDS,
        user_agent_extra="deeplearning-cdk",
        proxies={} if endpoint else None,
    )
    made: dict[str, Any] = {}

    def get_client(service: str) -> Any:
        if service not in made:
            made[service] = session.client(service, region_name=region, endpoint_url=endpoint, config=config)
        return made[service]

    return get_client
