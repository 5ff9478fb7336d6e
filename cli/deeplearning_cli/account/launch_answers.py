"""Answers of EC2 about launches that are not made: dry runs, and scores of capacity."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from deeplearning_cli.account.answers import Answers, Refused, ask
from deeplearning_cli.account.demand import NodeDemand

ACCEPTED = "DryRunOperation"
"""Code of a dry run that would have succeeded (EC2 API, `RunInstances`, `DryRun`)."""


@dataclass(frozen=True)
class DryRun:
    """Error with which EC2 answers each dry run: its code and message."""

    code: str
    message: str


@dataclass(frozen=True)
class LaunchAnswer:
    """
    Answers about a launch. None: EC2 was not asked.

    Attributes:
        launch: The launch; its number is that of all groups of its candidate that are alike.
        zone: Name of its zone.
        dry_run: Answer to its dry run.
        spot_score: Spot placement score of the zone, from 1 to 10.
        supportability: Score of Capacity Manager: high, medium, low or unsupported.
    """

    launch: NodeDemand
    zone: str
    dry_run: DryRun | Refused | None = None
    spot_score: int | Refused | None = None
    supportability: str | Refused | None = None


def read_launches(ec2: Any, region: str, demands: Sequence[NodeDemand], answers: Answers) -> list[LaunchAnswer]:
    """
    Ask EC2 about the launches of a stack whose zone is known.

    A reservation says itself what launches in it; without it, as its launch template is not there yet, EC2 may refuse
    a type that is sold in Capacity Blocks alone.
    """
    found: list[LaunchAnswer] = []
    for launch in list_launches(demands):
        zone = answers.place(launch.zone)
        if not zone or launch.market == "reserved":
            continue
        answer = LaunchAnswer(launch, zone, _read_dry_run(ec2, launch, zone, answers))
        if zone_id := "" if isinstance(answers.zones, Refused) else answers.zones.get(zone, ""):
            answer = _read_scores(ec2, region, answer, zone_id, is_refused=_is_refused(found))
        found.append(answer)
    return found


def list_launches(demands: Sequence[NodeDemand]) -> list[NodeDemand]:
    """Return the launches of a stack: those of a candidate that differ in nothing but group and role are one."""
    counts: dict[NodeDemand, int] = {}
    for demand in demands:
        key = replace(demand, group="", role="", count=0)
        counts[key] = counts.get(key, 0) + demand.count
    return [replace(key, count=count) for key, count in counts.items()]


def _read_dry_run(ec2: Any, launch: NodeDemand, zone: str, answers: Answers) -> DryRun | Refused | None:
    """Try a launch of what exists before the stack; None where the image is not known."""
    image = None if isinstance(answers.images, Refused) else answers.images.get(launch.image)
    if image is None:
        return None
    subnet = launch.zone.subnet if launch.zone else ""
    request = {
        "ImageId": image,
        "InstanceType": launch.instance_type,
        "MinCount": launch.count,
        "MaxCount": launch.count,
        **({"SubnetId": subnet} if subnet else {"Placement": {"AvailabilityZone": zone}}),
        **({"KeyName": launch.key_pair} if launch.key_pair else {}),
        **({"InstanceMarketOptions": {"MarketType": "spot"}} if launch.market == "spot" else {}),
    }
    return ask(lambda: _try_launch(ec2, request))


def _try_launch(ec2: Any, request: dict[str, Any]) -> DryRun:
    from botocore.exceptions import ClientError  # noqa: PLC0415 - slow, and only this command needs it

    found = {"Code": ACCEPTED, "Message": ""}
    try:
        ec2.run_instances(**request, DryRun=True)
    except ClientError as error:
        found |= error.response["Error"]
    return DryRun(found["Code"], found["Message"])


def _is_refused(found: Sequence[LaunchAnswer]) -> bool:
    return any(isinstance(answer.supportability, Refused) for answer in found)


def _read_scores(ec2: Any, region: str, answer: LaunchAnswer, zone_id: str, *, is_refused: bool) -> LaunchAnswer:
    """Read the scores of a zone; not that of Capacity Manager once more, if the account has none."""
    launch = answer.launch
    spot = ask(lambda: _read_spot_score(ec2, region, launch, zone_id)) if launch.market == "spot" else None
    supportability = None if is_refused else ask(lambda: _read_supportability(ec2, launch, zone_id))
    return replace(answer, spot_score=spot, supportability=supportability)


def _read_spot_score(ec2: Any, region: str, launch: NodeDemand, zone_id: str) -> int | Refused:
    scores = ec2.get_spot_placement_scores(
        InstanceTypes=[launch.instance_type],
        TargetCapacity=launch.count,
        TargetCapacityUnitType="units",
        SingleAvailabilityZone=True,
        RegionNames=[region],
    )["SpotPlacementScores"]
    none = Refused("EC2 gives the zone no score, as it does for the ten best alone")
    return next((int(each["Score"]) for each in scores if each["AvailabilityZoneId"] == zone_id), none)


def _read_supportability(ec2: Any, launch: NodeDemand, zone_id: str) -> str | Refused:
    if not hasattr(ec2, "get_capacity_manager_supportability_scores"):
        return Refused("the installed boto3 does not have the call; upgrade it")
    scores = ec2.get_capacity_manager_supportability_scores(
        MarketType=launch.market,
        CapacityAmount=launch.count,
        CapacityUnit="instances",
        CapacityAvailabilityZoneIds=[zone_id],
        InstanceTypes=[launch.instance_type],
    )["CapacityManagerSupportabilityScores"]
    return next((str(each["Score"]) for each in scores), Refused("EC2 gives no score"))
