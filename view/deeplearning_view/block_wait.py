"""Workers that wait for their Capacity Block, or that it left out, from the adjuster's record of the request."""

from dataclasses import dataclass

from deeplearning_contract.capacity_block import CapacityBlock
from deeplearning_contract.document import ContractError, parse_record
from deeplearning_view.aws_responses import AwsResponses
from deeplearning_view.log_lines import clean


@dataclass(frozen=True)
class _RequestRecord:
    block: CapacityBlock | None = None


def read_waiting(responses: AwsResponses) -> tuple[str, str]:
    """
    Return what the workers wait for, and the reason why the record could not be read; each is empty without it.

    The record has no block any more once it has begun.
    """
    if responses.request is None:
        return "", ""
    try:
        record = parse_record(_RequestRecord, responses.request.get("document", {}).get("S", ""), "request")
        return (clean(str(record.block.reason)) if record.block else ""), ""
    except (ContractError, OverflowError, ValueError) as error:
        return "", f"the record of the requested capacity: {error}"
