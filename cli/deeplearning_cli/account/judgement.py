"""Judgement of what a stack asks for by what the account has; pure."""

from collections.abc import Iterator, Sequence

from deeplearning_cli.account.answers import Answers, Refused, Reservation
from deeplearning_cli.account.demand import NodeDemand
from deeplearning_cli.account.finding import Finding
from deeplearning_cli.account.quotas import judge_quotas
from deeplearning_contract.names import NodeRole


def judge(demands: Sequence[NodeDemand], answers: Answers) -> list[Finding]:
    """Return a finding for each thing that the instances need; types and zones first, then what launches need."""
    return [
        *_judge_offerings(demands, answers),
        *judge_quotas(demands, answers),
        *_judge_reservations(demands, answers),
        *_judge_images(demands, answers),
        *_judge_key_pairs(demands, answers),
    ]


def _judge_offerings(demands: Sequence[NodeDemand], answers: Answers) -> Iterator[Finding]:
    for demand in {(each.instance_type, each.zone): each for each in demands}.values():
        kind, zone = demand.instance_type, answers.place(demand.zone)
        subject = f"{kind} in {zone or 'its zone'}"
        if isinstance(answers.offered, Refused):
            yield Finding.refused(subject, answers.offered, "ec2:DescribeInstanceTypeOfferings")
            continue
        offering = sorted(answers.offered.get(kind, ()))
        there = f"{kind} is offered in {', '.join(offering)}" if offering else f"no zone of the region has {kind}"
        if not offering:
            yield Finding(subject, "wrong", there, "choose another region or instance type")
        elif refusal := answers.find_refusal(demand.zone):
            yield Finding.refused(subject, refusal, "ec2:DescribeAvailabilityZones and ec2:DescribeSubnets")
        elif not zone:
            yield Finding(subject, "unknown", f"{there}; the zone of {demand.group} is not known", "name the zone")
        elif zone not in offering:
            yield Finding(subject, "wrong", there, f"set network.availability_zone to one of {', '.join(offering)}")
        else:
            yield Finding(subject, "ok", f"{_name_zone(zone, answers)} offers it, which is no promise of capacity")


def _name_zone(zone: str, answers: Answers) -> str:
    known = "" if isinstance(answers.zones, Refused) else answers.zones.get(zone, "")
    return f"{zone} ({known})" if known else zone


def _judge_reservations(demands: Sequence[NodeDemand], answers: Answers) -> Iterator[Finding]:
    for name in dict.fromkeys(demand.reservation for demand in demands if demand.reservation):
        own = [demand for demand in demands if demand.reservation == name]
        subject = f"reservation {name}"
        if isinstance(answers.reservations, Refused):
            yield Finding.refused(subject, answers.reservations, "ec2:DescribeCapacityReservations")
            continue
        found = answers.reservations.get(name)
        if found is None:
            yield Finding(subject, "wrong", "the account has none of that id in this region", "correct the id")
            continue
        yield _judge_reservation(subject, found, own, answers)


def _judge_reservation(subject: str, found: Reservation, demands: Sequence[NodeDemand], answers: Answers) -> Finding:
    asked = sum(demand.count for demand in demands)
    time = f", from {found.start} to {found.end}" if found.is_block else ""
    detail = f"{found.state}, {found.free} {found.instance_type} free in {found.zone}{time}"
    types = {demand.instance_type for demand in demands} - {found.instance_type}
    zones = {answers.place(demand.zone) for demand in demands} - {found.zone, ""}
    if types or zones:
        place = f"set network.availability_zone to {found.zone}"
        remedy = f"choose {found.instance_type} in place of {min(types)}" if types else place
        return Finding(subject, "wrong", detail, remedy)
    if found.state in ("scheduled", "payment-pending", "assessing", "delayed", "pending"):
        if found.is_block and all(demand.role == NodeRole.WORKER for demand in demands):
            return Finding(subject, "ok", f"{detail}; the workers wait for it")
        return Finding(subject, "wrong", detail, "deploy once its state is active")
    if found.state != "active":
        return Finding(subject, "wrong", detail, "reserve capacity anew, or choose another purchase option")
    if found.free < asked:
        return Finding(subject, "wrong", f"{detail}; the stack asks for {asked}", "ask for fewer, or reserve more")
    return Finding(subject, "ok", detail)


def _judge_images(demands: Sequence[NodeDemand], answers: Answers) -> Iterator[Finding]:
    for image in dict.fromkeys(demand.image for demand in demands if demand.image):
        subject, actions = f"image {image.removeprefix('ssm:')}", "ec2:DescribeImages and ssm:GetParameter"
        if isinstance(answers.images, Refused):
            yield Finding.refused(subject, answers.images, actions)
        elif answers.images.get(image) is None:
            yield Finding(subject, "wrong", "this region has none that the account may use", "choose another")
        else:
            yield Finding(subject, "ok", str(answers.images[image]))


def _judge_key_pairs(demands: Sequence[NodeDemand], answers: Answers) -> Iterator[Finding]:
    for name in dict.fromkeys(demand.key_pair for demand in demands if demand.key_pair):
        subject = f"key pair {name}"
        if isinstance(answers.key_pairs, Refused):
            yield Finding.refused(subject, answers.key_pairs, "ec2:DescribeKeyPairs")
        elif name not in answers.key_pairs:
            remedy = f"aws ec2 create-key-pair --key-name {name}, or set key_pair to one that exists"
            yield Finding(subject, "wrong", "it is not in this region", remedy)
        else:
            yield Finding(subject, "ok", "it exists")
