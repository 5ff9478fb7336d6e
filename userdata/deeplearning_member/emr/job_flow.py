"""EMR's description of the cluster, which every instance has before its bootstrap actions run."""

from dataclasses import dataclass
from pathlib import Path

from deeplearning_contract.document import check_type, field, parse_object
from deeplearning_contract.names import EMR_INFO_DIRECTORY, NodeRole
from deeplearning_node.failure import StageFailure


@dataclass(frozen=True)
class JobFlow:
    """EMR cluster of this instance."""

    cluster_id: str  # EMR's id of the cluster, such as `j-2AXXXXXXGAPLF`
    role: NodeRole  # Role of this instance: the primary node is the master
    node_count: int  # Instances that the instance groups request, the primary node included

    @classmethod
    def read(cls, root: Path) -> "JobFlow":
        """Read instance.json and job-flow.json; StageFailure when one is absent or malformed."""
        folder = root / EMR_INFO_DIRECTORY.lstrip("/")
        try:
            instance = parse_object((folder / "instance.json").read_text(encoding="utf-8"), "instance.json")
            flow = parse_object((folder / "job-flow.json").read_text(encoding="utf-8"), "job-flow.json")
            groups = [check_type(each, dict, "group") for each in field(flow, "instanceGroups", list, "job-flow.json")]
            is_master = field(instance, "isMaster", bool, "instance.json")
            return cls(
                cluster_id=field(flow, "jobFlowId", str, "job-flow.json"),
                role=NodeRole.MASTER if is_master else NodeRole.WORKER,
                node_count=sum(field(each, "requestedInstanceCount", int, "group") for each in groups),
            )
        except (OSError, ValueError) as error:  # ContractError is a ValueError.
            raise StageFailure(
                f"EMR's description of the cluster could not be read: {error}",
                "run this program on an instance of an EMR cluster with uniform instance groups",
                stage="read the job flow",
            ) from error
