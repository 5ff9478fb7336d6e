"""Output of `deeplearning-cdk status` for the rehearsed cluster, read before the lab ends."""

from datetime import datetime, timezone

from cdk_rehearsal.embedded_aws.cloud import EmbeddedAws
from deeplearning_view.aws_reader import read_responses
from deeplearning_view.aws_responses import ViewError
from deeplearning_view.rendering import render_text
from deeplearning_view.view_builder import make_view


def describe_outside(aws: EmbeddedAws) -> str:
    """Return the page of `deeplearning-cdk status`; what cannot be looked at becomes its text."""
    place = aws.place
    try:
        responses = read_responses(place.client, place.region, aws.stack_name)
    except ViewError as error:
        return f"status cannot be told: {error}"
    return render_text(make_view(responses, datetime.now(timezone.utc)))
