"""SageMaker's description of a training job, which every container has before its program starts."""

import json
import re
from dataclasses import dataclass
from dataclasses import field as attribute
from pathlib import Path

from deeplearning_contract.document import check_type, field, parse_object
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.training_job import INPUT_FOLDER, SIGNING_PARAMETER, read_training_job
from deeplearning_contract.names import NodeRole
from deeplearning_node.failure import StageFailure

_HOST = re.compile(r"algo-([1-9][0-9]{0,3})")
_RESOURCES, _PARAMETERS, _CHANNELS = "resourceconfig.json", "hyperparameters.json", "inputdataconfig.json"


@dataclass(frozen=True)
class TrainingJob:
    """Training job of this container."""

    name: str
    host: str  # Name of this container, such as `algo-1`
    hosts: tuple[str, ...]  # Names of all containers, by number
    interface: str  # Network interface between them
    channels: frozenset[str]  # Names of the channels
    definition: JobDefinition  # The job that it runs
    secret: str = attribute(repr=False)  # Secret of the job's members

    @property
    def role(self) -> NodeRole:
        """Role of this container: the first one starts the ranks."""
        return NodeRole.MASTER if self.host == self.hosts[0] else NodeRole.WORKER

    def __post_init__(self) -> None:
        if self.host not in self.hosts:
            raise ValueError(
                f"hosts must contain the container's own name, got {self.host} and {', '.join(self.hosts)}"
            )

    @classmethod
    def read(cls, root: Path, name: str) -> "TrainingJob":
        """
        Read the files of /opt/ml/input/config; StageFailure when one is absent or malformed.

        Source: SageMaker developer guide, "How Amazon SageMaker AI Provides Training Information".
        """
        folder = root / INPUT_FOLDER.lstrip("/") / "config"
        try:
            resources = parse_object((folder / _RESOURCES).read_text(encoding="utf-8"), _RESOURCES)
            parameters = parse_object((folder / _PARAMETERS).read_text(encoding="utf-8"), _PARAMETERS)
            channels = parse_object((folder / _CHANNELS).read_text(encoding="utf-8"), _CHANNELS)
            hosts = [check_type(each, str, "host") for each in field(resources, "hosts", list, _RESOURCES)]
            host = field(resources, "current_host", str, _RESOURCES)
            return cls(
                name=name,
                host=host,
                # As texts, algo-10 comes before algo-2.
                hosts=tuple(sorted(hosts, key=_read_number)),
                interface=field(resources, "network_interface_name", str, _RESOURCES),
                channels=frozenset(channels),
                definition=read_training_job({key: check_type(text, str, key) for key, text in parameters.items()}),
                secret=field(parameters, SIGNING_PARAMETER, str, _PARAMETERS),
            )
        except (OSError, ValueError) as error:  # ContractError is a ValueError.
            raise StageFailure(
                f"SageMaker's description of the job could not be read: {error}",
                "start the job with deeplearning-cdk submit",
                stage="read the training job",
            ) from error


def _read_number(host: str) -> int:
    match = _HOST.fullmatch(host)
    if match is None:
        raise ValueError(f"hosts must be like algo-1, got {json.dumps(host)}")
    return int(match[1])
