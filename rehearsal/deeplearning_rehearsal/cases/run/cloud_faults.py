"""Turns the faults of a case into options of the embedded AWS."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cdk_rehearsal.embedded_aws import CloudOptions, LaunchFault
from cdk_rehearsal.embedded_aws.messaging.message_faults import MessageFaults
from deeplearning_contract.names import ROLE_TAG
from deeplearning_rehearsal.cases.format.account import fill_account
from deeplearning_rehearsal.cases.format.case import Case, CaseError, LaunchFaultWords
from deeplearning_rehearsal.checks.metric_names import require_known_metric
from deeplearning_rehearsal.software.kept_environments import KeptEnvironments

_QUICK_RETRIES = (1.0, 2.0)
"""Lambda's own pauses are a minute and two, for which no case waits."""


def make_cloud_options(case: Case | None, key_pairs: Mapping[str, str], kept: KeptEnvironments) -> CloudOptions:
    """
    Return how the embedded AWS behaves.

    Args:
        case: The fault case. None: as AWS does.
        key_pairs: Name -> OpenSSH public key of the account's key pairs.
        kept: Environments of earlier rehearsals.

    Raises:
        CaseError: A launch fault has a code whose wording is not known, and brings none.
    """
    options = CloudOptions(
        key_pairs=key_pairs,
        label_instance=lambda tags, group: tags.get(ROLE_TAG, group),
        check_metric=require_known_metric,
    )
    if case is None:
        return options
    cloud = case.cloud
    try:
        faults = tuple(map(_make_launch_fault, cloud.launch_faults))
    except ValueError as error:
        raise CaseError(f"{case.name}.toml: cloud.launch_faults: {error}") from error
    gap = options.pace.notification_gap if cloud.notification_gap is None else cloud.notification_gap
    return replace(
        options,
        faults=faults,
        lose_notifications=cloud.lose_notifications,
        pace=replace(options.pace, notification_gap=gap),
        message_faults=MessageFaults(**dict.fromkeys(cloud.messages, True)) if cloud.messages else None,
        object_seconds=cloud.object_seconds,
        lose_answers=cloud.lose_answers,
        retry_seconds=_QUICK_RETRIES if cloud.lose_answers else options.retry_seconds,
        prepare=lambda place: fill_account(place, case.objects, case.buckets, kept),
    )


def _make_launch_fault(words: LaunchFaultWords) -> LaunchFault:
    arguments: dict[str, Any] = {**words}
    role = arguments.pop("role", None)
    return LaunchFault(**arguments, tags={} if role is None else {ROLE_TAG: role})
