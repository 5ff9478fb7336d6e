"""Forwards what went wrong in a cluster to its alarm topic, in words."""

import json

from aws_cdk import aws_events as events
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from deeplearning_cdk.operations.dead_letters import admit_rule, keep_undelivered
from deeplearning_contract.cluster_event import EventKind, name_source

FORWARDED = (EventKind.FAILED, EventKind.DEGRADED)
"""The others say that all went as it should; who wants them has them on the account's default event bus."""
_PATHS = {
    "kind": "$.detail-type",
    "cluster": "$.detail.cluster",
    "generation": "$.detail.generation",
    "nodes": "$.detail.nodes",
    "reason": "$.detail.reason",
}
_TEXT = "<kind>: <cluster>, generation <generation>, <nodes> nodes. <reason>"


class ClusterEventRule(Construct):
    """
    A rule on the default event bus that publishes a readable text for each event of a cluster that asks for somebody.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        cluster: The cluster's name.
        topic: Where the texts go; its policy must admit `events.amazonaws.com`.
        dead_letters: Keeps the events that the topic refuses.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, cluster: str, topic: sns.ITopic, dead_letters: sqs.Queue
    ) -> None:
        super().__init__(scope, construct_id)
        rule = events.CfnRule(
            self,
            "Rule",
            description=f"Tells what went wrong in the deep-learning cluster {cluster}",
            event_pattern={
                "source": [name_source(cluster)],
                "detail-type": [kind.value for kind in FORWARDED],
                "detail": {"cluster": [cluster]},
            },
            state="ENABLED",
            targets=[
                events.CfnRule.TargetProperty(
                    arn=topic.topic_arn,
                    id="AlarmTopic",
                    input_transformer=events.CfnRule.InputTransformerProperty(
                        # A text must be a JSON string.
                        input_paths_map=_PATHS,
                        input_template=json.dumps(_TEXT),
                    ),
                    dead_letter_config=keep_undelivered(dead_letters),
                )
            ],
        )
        admit_rule(dead_letters, rule)
