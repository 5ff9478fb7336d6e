"""Judgement of what EC2 says about launches that are not made; none of it is a promise of capacity."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from deeplearning_cli.account.answers import Refused
from deeplearning_cli.account.finding import Finding
from deeplearning_cli.account.launch_answers import ACCEPTED, DryRun, LaunchAnswer
from deeplearning_contract.launch_failures import UNKNOWN_FAILURE, Scope, classify_failure, clean_message, find_remedy

DRY_RUN_RIGHT = "ec2:RunInstances"
_RIGHT = re.compile(r"not authorized to perform: ([a-z0-9-]+:[A-Za-z]+)")
_ORGANIZATION = "service control policy"
"""Words of a refusal by the organization (IAM User Guide, "Troubleshoot access denied error messages")."""
_NO_SUBNET = ("MissingInput", "VPCIdNotSpecified")
"""Codes of a launch without a subnet, where the account has no default one (EC2 API, "Error codes for the Amazon EC2
API"); a dry run is refused alike (karpenter-provider-aws#7844)."""


def judge_launches(answers: Sequence[LaunchAnswer]) -> Iterator[Finding]:
    """Judge dry runs, then scores."""
    for answer in answers:
        if answer.dry_run is not None:
            yield _judge_dry_run(f"dry run of {_describe(answer)}", answer.dry_run)
    for answer in answers:
        if answer.spot_score is not None:
            yield _judge_spot(f"spot placement score of {_describe(answer)}", answer.spot_score)
    for answer in answers:
        if answer.supportability is not None:
            yield _judge_supportability(f"supportability of {_describe(answer)}", answer.supportability)


def _describe(answer: LaunchAnswer) -> str:
    launch = answer.launch
    return f"{launch.count} {launch.instance_type} in {answer.zone}" + (", spot" if launch.market == "spot" else "")


def _judge_dry_run(subject: str, answer: DryRun | Refused) -> Finding:
    """Judge a dry run, which checks no quota (aws-parallelcluster#1779)."""
    if isinstance(answer, Refused):
        return _advise(Finding.refused(subject, answer, DRY_RUN_RIGHT))
    if answer.code == ACCEPTED:
        text = "EC2 would take image, type, key pair and zone together; it proves no capacity and no quota"
        return Finding(subject, "ok", text)
    words = f"{answer.code}: {clean_message(answer.message)}"
    if answer.code == "UnauthorizedOperation":
        return _judge_denial(subject, answer, words)
    if answer.code in _NO_SUBNET:
        return _advise(Finding(subject, "unknown", words, "nothing is to be done: the stack has a subnet of its own"))
    kind = classify_failure(words)
    if kind is UNKNOWN_FAILURE or kind.scope is Scope.REGION:
        return _advise(Finding(subject, "unknown", words, "look the words up in the EC2 API's error codes"))
    return Finding(subject, "wrong", words, find_remedy(words))


def _judge_denial(subject: str, answer: DryRun, words: str) -> Finding:
    """Judge a denied dry run: a policy of the user says nothing about the nodes, one of the organization does."""
    found = _RIGHT.search(answer.message)
    right = found[1] if found else DRY_RUN_RIGHT
    if _ORGANIZATION in answer.message:
        return Finding(subject, "wrong", words, f"ask who manages the organization to allow {right} in this region")
    return _advise(Finding(subject, "unknown", words, f"allow {right}, which allows real launches too, or leave it"))


def _judge_spot(subject: str, answer: int | Refused) -> Finding:
    """Judge a spot placement score: low for fewer than three types (EC2 API, `GetSpotPlacementScores`)."""
    if isinstance(answer, Refused):
        return _advise(Finding.refused(subject, answer, "ec2:GetSpotPlacementScores"))
    return Finding(subject, "ok", f"{answer} of 10, which is always low for fewer than three types")


def _judge_supportability(subject: str, answer: str | Refused) -> Finding:
    """Judge a supportability score: not every account has it (EC2 API, `GetCapacityManagerSupportabilityScores`)."""
    if isinstance(answer, Refused):
        needs = "ec2:GetCapacityManagerSupportabilityScores, Capacity Manager and the Unified Operations plan"
        return _advise(Finding(subject, "unknown", answer.reason, f"the score requires {needs}"))
    if answer == "unsupported":
        return Finding(subject, "wrong", answer, "choose another zone or instance type")
    return Finding(subject, "ok", f"{answer} by the capacity of this moment, which is no promise")


def _advise(finding: Finding) -> Finding:
    return replace(finding, is_advice=True)
