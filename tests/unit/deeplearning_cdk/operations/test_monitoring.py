"""Monitoring of a cluster: alarms, dashboard and budget, and the recipients of their messages."""

import json
import re
from pathlib import Path

import pytest
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs

from deeplearning_cdk import NodeImage, TrainingCluster
from deeplearning_cdk.capacity.spending import ClusterBudget
from deeplearning_cdk.coordination.messages import FORWARDED, NO_POLICY, allow_publishers
from deeplearning_cdk.operations.dashboard import LEFT_OUT_WITHOUT_FALLBACKS, LEFT_OUT_WITHOUT_GPUS
from deeplearning_cdk.operations.metrics import ClusterMetrics
from deeplearning_contract.cluster_event import ClusterEvent, EventKind, name_source
from deeplearning_contract.log_record import ADJUSTER, REASON, LogLine, Speaker
from deeplearning_contract.metrics import CLUSTER, METRICS, NAMESPACE, NODE, PHASE
from deeplearning_contract.names import CLUSTER_TAG
from deeplearning_contract.reason import Reason
from deeplearning_contract.settings import AdjusterSettings
from tests.unit.deeplearning_cdk.clusters import plan
from tests.unit.deeplearning_cdk.test_public_api import VARIANTS

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "monitoring.md"
TOPIC = "MonitoringAlarms"
CPU = {"workers.instance_type": "m5.large"}
IMAGE = NodeImage.from_ami_id("ami-0123456789abcdef0", login_user="ubuntu")
BUDGET, STOPPING = VARIANTS["capacity-block"], VARIANTS["guarded-spending"]
FALLBACKS = VARIANTS["fallbacks"]

# Metric, statistic, period, periods, comparison, threshold, whether its end is told.
ABOVE, BELOW = "GreaterThanThreshold", "LessThanThreshold"
EVERYWHERE = {
    "Errors": ("AWS/Lambda", "Errors", "Sum", 60, 3, "GreaterThanOrEqualToThreshold", 1, True),
    "LaunchFailures": (NAMESPACE, "LaunchFailures", "Maximum", 300, 1, ABOVE, 0, True),
    "NodesLost": (NAMESPACE, "NodesLost", "Sum", 300, 1, ABOVE, 0, False),
    "FormationStuck": (NAMESPACE, "FormationPendingSeconds", "Maximum", 60, 3, ABOVE, 3000, True),
    "DeadLetters": ("AWS/SQS", "ApproximateNumberOfMessagesVisible", "Maximum", 300, 1, ABOVE, 0, True),
}
IDLE = {"IdleGpus": (NAMESPACE, "GpuUtilization", "Average", 300, 12, BELOW, 5, True)}
USED_UP = {"BudgetUsedUp": ("AWS/SNS", "NumberOfMessagesPublished", "Sum", 300, 1, ABOVE, 0, False)}


def _alarms(synthesis):
    named = {}
    for name, entry in synthesis.of_type("AWS::CloudWatch::Alarm").items():
        (short,) = re.findall(r"(?:CapacityAdjuster|MonitoringWatch)([A-Za-z]+?)[0-9A-F]{8}$", name)
        named[short] = entry["Properties"]
    return named


def _topic(synthesis):
    (name,) = (name for name in synthesis.of_type("AWS::SNS::Topic") if TOPIC in name)
    return {"Ref": name}


def _widgets(synthesis):
    body = synthesis.only("AWS::CloudWatch::Dashboard")["DashboardBody"]
    parts = [part if isinstance(part, str) else "X" for part in body["Fn::Join"][1]]
    return list(json.loads("".join(parts))["widgets"])


def _cluster_metrics(synthesis):
    """Return name and dimensions of each metric of ours that dashboard and alarms name."""
    found = set()
    for widget in _widgets(synthesis):
        for row in widget["properties"].get("metrics", []):
            texts = [part for part in row if isinstance(part, str)]
            if texts[:1] == [NAMESPACE]:
                found.add((texts[1], frozenset(texts[2::2])))
            for searched in re.findall(
                rf"{{{NAMESPACE},([\w,]+)}} MetricName=\"(\w+)\"", json.dumps(row).replace("\\", "")
            ):
                found.add((searched[1], frozenset(searched[0].split(","))))
    for alarm in _alarms(synthesis).values():
        if alarm["Namespace"] == NAMESPACE:
            found.add((alarm["MetricName"], frozenset(entry["Name"] for entry in alarm["Dimensions"])))
    return found


@pytest.mark.fault(35)
@pytest.mark.parametrize(
    ("props", "expected"),
    [
        ({}, EVERYWHERE | IDLE),
        (CPU, EVERYWHERE),
        (BUDGET, EVERYWHERE | IDLE),
        (STOPPING, EVERYWHERE | USED_UP),
    ],
    ids=["default", "cpu", "budget", "budget-stops"],
)
def test_alarms_are_exactly_these(synthesize, props, expected):
    found = _alarms(synthesize(**props))
    assert {
        name: (
            alarm["Namespace"],
            alarm["MetricName"],
            alarm["Statistic"],
            alarm["Period"],
            alarm["EvaluationPeriods"],
            alarm["ComparisonOperator"],
            alarm["Threshold"],
            "OKActions" in alarm,
        )
        for name, alarm in found.items()
    } == expected


def _rows(heading):
    """Return the cells of the rows of the table below a heading of the page, without their backticks."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_lists_every_metric_with_its_unit_and_dimensions_and_the_events_that_notify():
    def describe(sets):
        return ", and ".join(" ".join(names[1:]) or "none" for names in sets).removesuffix("none")

    listed = [tuple(cells[:3]) for cells in _rows("Metrics")]
    assert listed == [(metric.name, metric.unit, describe(metric.dimensions)) for metric in METRICS]
    events = {name: notifies for name, _, _, notifies in _rows("Events")}
    assert events == {kind.value: "yes" if kind in FORWARDED else "no" for kind in EventKind}


def test_the_page_lists_every_alarm_with_its_metric_and_threshold():
    listed = {}
    for name, metric, raised, _ in _rows("Alarms"):
        above = re.search(r"(above|below|at least) ([0-9]+|the time)", raised)
        minutes = re.search(r"(?:in|for) ([0-9]+) minutes$", raised)
        assert above, raised
        assert minutes, raised
        listed[name] = (metric.partition(" of ")[0], above[1], above[2], int(minutes[1]))
    words = {ABOVE: "above", BELOW: "below", "GreaterThanOrEqualToThreshold": "at least"}
    assert listed == {
        name: (metric, words[way], "the time" if name == "FormationStuck" else str(threshold), period * times // 60)
        for name, (_, metric, _, period, times, way, threshold, _) in (EVERYWHERE | IDLE | USED_UP).items()
    }


@pytest.mark.parametrize(
    ("props", "has_gpus"),
    [
        ({"workers.instance_type": "g5.xlarge", "workers.desired_capacity": 0}, True),
        ({"workers.instance_type": "g5.xlarge", "master.instance_type": "m5.large"}, True),
        (
            {
                "workers.instance_type": "g5.xlarge",
                "master.instance_type": "m5.large",
                "workers.min_capacity": 0,
                "workers.max_capacity": 0,
            },
            False,
        ),
        ({**CPU, "master.instance_type": "g5.xlarge"}, True),
        ({"workers.instance_type": "trn1.32xlarge", "software.image": IMAGE}, False),
    ],
    ids=["no-workers", "gpu-workers", "never-workers", "gpu-master", "trainium"],
)
def test_gpus_are_watched_where_a_node_can_have_some_of_nvidia(props, *, has_gpus):
    assert plan(props).has_gpus is has_gpus


def test_every_alarm_goes_to_the_topic_and_takes_silence_as_good_and_aws_takes_its_times(synthesize):
    synthesis = synthesize(**STOPPING)
    (function,) = (name for name in synthesis.of_type("AWS::Lambda::Function") if "CapacityAdjuster" in name)
    assert _alarms(synthesis)["Errors"]["Dimensions"] == [{"Name": "FunctionName", "Value": {"Ref": function}}]
    for alarm in _alarms(synthesis).values():
        assert alarm["AlarmActions"] == alarm.get("OKActions", alarm["AlarmActions"]) == [_topic(synthesis)]
        assert alarm.get("ActionsEnabled", True)
        assert alarm["TreatMissingData"] == "notBreaching"
        # PutMetricAlarm: a multiple of a minute, and at most a day in all.
        assert alarm["Period"] % 60 == 0
        assert alarm["Period"] * alarm["EvaluationPeriods"] <= 86400


def test_alarms_go_to_the_users_topic_which_is_opened_to_them(make_stack, read_stack):
    stack = make_stack()
    TrainingCluster(stack, "Cluster", alarm_topic=sns.Topic(stack, "OnCall"))
    synthesis = read_stack(stack)
    (name,) = (name for name in synthesis.of_type("AWS::SNS::Topic") if name.startswith("OnCall"))
    assert all(alarm["AlarmActions"] == [{"Ref": name}] for alarm in _alarms(synthesis).values())
    assert not [name for name in synthesis.of_type("AWS::SNS::Topic") if TOPIC in name]
    statements = synthesis.part("AWS::SNS::TopicPolicy", "OnCall")["Properties"]["PolicyDocument"]["Statement"]
    assert [entry["Principal"]["Service"] for entry in statements] == [
        ["budgets.amazonaws.com", "cloudwatch.amazonaws.com"],
        "events.amazonaws.com",
    ]
    assert not [warning for warning in synthesis.warnings if "alarm_topic" in warning]


def test_imported_topic_is_warned_about_since_its_policy_cannot_be_changed(make_stack, read_stack):
    stack = make_stack()
    allow_publishers(stack, sns.Topic.from_topic_arn(stack, "OnCall", "arn:aws:sns:us-east-1:111122223333:on-call"))
    (warning,) = read_stack(stack).warnings
    assert "alarm_topic" in warning
    assert "events.amazonaws.com (without a condition)" in warning
    assert NO_POLICY in warning


def test_own_topic_is_encrypted_refuses_plain_http_and_allows_aws_for_this_account_only(synthesize):
    synthesis = synthesize()
    topic = synthesis.part("AWS::SNS::Topic", TOPIC)["Properties"]
    assert topic["KmsMasterKeyId"]
    https, bound, events = synthesis.part("AWS::SNS::TopicPolicy", TOPIC)["Properties"]["PolicyDocument"]["Statement"]
    assert (https["Effect"], https["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    assert https["Principal"] in ("*", {"AWS": "*"})
    assert bound["Principal"] == {"Service": ["budgets.amazonaws.com", "cloudwatch.amazonaws.com"]}
    assert bound["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
    # EventBridge gives SNS no condition key: with a condition its events would be lost.
    assert events["Principal"] == {"Service": "events.amazonaws.com"}
    assert "Condition" not in events
    assert all(entry["Action"] == "sns:Publish" for entry in (https, bound, events))


@pytest.mark.parametrize("props", [{}, CPU, STOPPING, FALLBACKS], ids=["default", "cpu", "budget-stops", "fallbacks"])
def test_dashboard_and_alarms_name_only_metrics_that_are_written(synthesize, props):
    written = {(metric.name, frozenset(names)) for metric in METRICS for names in metric.dimensions}
    assert _cluster_metrics(synthesize(**props)) <= written


@pytest.mark.parametrize(
    ("props", "left_out"),
    [
        ({}, LEFT_OUT_WITHOUT_FALLBACKS),
        (CPU, LEFT_OUT_WITHOUT_FALLBACKS + LEFT_OUT_WITHOUT_GPUS),
        (FALLBACKS, ()),
    ],
    ids=["default", "cpu", "fallbacks"],
)
def test_dashboard_shows_every_metric_or_it_is_named_as_left_out(synthesize, props, left_out):
    shown = {
        (texts[1], frozenset(texts[2::2]))
        for widget in _widgets(synthesize(**props))
        for row in widget["properties"].get("metrics", [])
        if (texts := [part for part in row if isinstance(part, str)])[:1] == [NAMESPACE]
    } | {
        (metric.name, frozenset({CLUSTER, NODE}))
        for metric in METRICS
        if f'{{{NAMESPACE},{CLUSTER},{NODE}}} MetricName=\\"{metric.name}\\"'
        in json.dumps(_widgets(synthesize(**props)))
    }
    every = {
        (metric.name, frozenset(names)) for metric in METRICS if metric not in left_out for names in metric.dimensions
    }
    assert shown == every


def test_dashboard_begins_with_the_way_in_and_ends_with_the_last_warnings(synthesize):
    synthesis = synthesize()
    first, second, *_, last = _widgets(synthesis)
    assert (first["type"], second["type"], last["type"]) == ("text", "alarm", "log")
    assert "aws ssm start-session --region X --target" in first["properties"]["markdown"]
    assert len(second["properties"]["alarms"]) == len(_alarms(synthesis))
    assert last["properties"]["query"].startswith("SOURCE 'X' | SOURCE 'X' | fields @timestamp, level")
    assert all(widget["x"] + widget["width"] <= 24 for widget in _widgets(synthesis))


def _find_path(document, path):
    for key in path.split("."):
        document = document[key]
    return document


def test_dashboard_shows_fields_that_the_lines_of_a_failure_have(synthesize):
    """A path names a nested field: CloudWatch Logs user guide, "Supported logs and discovered fields", JSON logs."""
    reason = Reason("no capacity", "wait")
    line = LogLine(0.0, "ERROR", Speaker("mine", ADJUSTER, ADJUSTER), 1, "a", str(reason), {REASON: reason})
    (names,) = re.findall(r"\| fields @timestamp, (.*)", _widgets(synthesize())[-1]["properties"]["query"])
    shown = {name: _find_path(json.loads(line.to_text()), name) for name in names.split(", ")}
    assert shown["message"] == "no capacity; wait"
    assert (shown["reason.cause"], shown["reason.remedy"]) == ("no capacity", "wait")


def test_metrics_of_users_dashboards_are_the_clusters():
    metrics = ClusterMetrics("mine")
    made = [
        metrics.metric_capacity_asked(),
        metrics.metric_capacity_launched(),
        metrics.metric_nodes_formed(),
        metrics.metric_generation(),
        metrics.metric_nodes_lost(),
        metrics.metric_launch_failures(),
        metrics.metric_candidates_tried(),
        metrics.metric_formation_pending(),
        metrics.metric_formation_phase("boot"),
        metrics.metric_gpu_utilization(),
        metrics.metric_file_system_read(),
        metrics.metric_file_system_write(),
        metrics.metric_training_throughput(),
    ]
    assert {metric.metric_name for metric in made} == {metric.name for metric in METRICS}
    for metric in made:
        wanted = {CLUSTER: "mine"} | ({PHASE: "boot"} if metric.metric_name == "FormationSeconds" else {})
        assert (metric.namespace, dict(metric.dimensions)) == (NAMESPACE, wanted)
    with pytest.raises(ValueError, match=r"phase must be one of boot, .*, got 'sleep'"):
        metrics.metric_formation_phase("sleep")


def test_failure_events_are_published_as_text(synthesize):
    synthesis = synthesize()
    rule = synthesis.part("AWS::Events::Rule", "MonitoringEvents")["Properties"]
    pattern = rule["EventPattern"]
    (cluster,) = pattern["detail"]["cluster"]
    assert pattern["source"] == [name_source(cluster)]
    assert pattern["detail-type"] == [
        "Deep Learning Cluster Failed",
        "Deep Learning Cluster Degraded",
        "Deep Learning Job Failed",
    ]
    assert set(pattern["detail-type"]) < {kind.value for kind in EventKind}
    assert list(pattern["detail"]) == ["cluster"]
    (target,) = rule["Targets"]
    assert target["Arn"] == _topic(synthesis)
    assert "RoleArn" not in target
    text = json.loads(target["InputTransformer"]["InputTemplate"])
    paths = target["InputTransformer"]["InputPathsMap"]
    assert set(re.findall(r"<(\w+)>", text)) == set(paths)
    event = ClusterEvent(
        kind=EventKind.FAILED, cluster="mine", generation=1, nodes=0, reason=Reason("no capacity", "wait")
    )
    entry = event.to_entry()
    received = {"detail-type": entry["DetailType"], "detail": json.loads(entry["Detail"])}
    words = {name: str(_find_path(received, path.removeprefix("$."))) for name, path in paths.items()}
    told = re.sub(r"<(\w+)>", lambda found: words[found[1]], text)
    assert told == "Deep Learning Cluster Failed: mine, generation 1, 0 nodes. no capacity; wait"


def _budget(synthesis):
    properties = synthesis.only("AWS::Budgets::Budget")
    return properties["Budget"], [
        (
            entry["Notification"]["NotificationType"],
            entry["Notification"]["ComparisonOperator"],
            entry["Notification"]["Threshold"],
            entry["Notification"]["ThresholdType"],
            [(subscriber["SubscriptionType"], subscriber["Address"]) for subscriber in entry["Subscribers"]],
        )
        for entry in properties["NotificationsWithSubscribers"]
    ]


def test_budget_counts_costs_with_the_clusters_tag_and_notifies_the_topic(synthesize):
    synthesis = synthesize(**BUDGET)
    variables = synthesis.part("AWS::Lambda::Function", "Adjuster")["Properties"]["Environment"]["Variables"]
    told = [("SNS", _topic(synthesis))]
    assert _budget(synthesis) == (
        {
            "BudgetType": "COST",
            "TimeUnit": "MONTHLY",
            "BudgetLimit": {"Amount": 5000, "Unit": "USD"},
            # AWS Cost Management, "Filtering": user:<tag's key>$<tag's value>.
            "CostFilters": {"TagKeyValue": [f"user:{CLUSTER_TAG}${variables['DEEPLEARNING_CLUSTER']}"]},
        },
        [
            ("ACTUAL", "GREATER_THAN", 80, "PERCENTAGE", told),
            ("FORECASTED", "GREATER_THAN", 100, "PERCENTAGE", told),
            ("ACTUAL", "GREATER_THAN", 100, "PERCENTAGE", told),
        ],
    )
    assert "DEEPLEARNING_BUDGET_TOPIC_ARN" not in variables


def test_used_up_budget_invokes_the_adjuster_through_its_own_topic(synthesize):
    synthesis = synthesize(**STOPPING)
    (used_up,) = (name for name in synthesis.of_type("AWS::SNS::Topic") if "BudgetUsedUp" in name)
    told = [("SNS", _topic(synthesis))]
    assert [(row[0], row[2], row[4]) for row in _budget(synthesis)[1]] == [
        ("ACTUAL", 80, told),
        ("FORECASTED", 100, told),
        ("ACTUAL", 100, [("SNS", {"Ref": used_up})]),
    ]
    (adjuster,) = (name for name in synthesis.of_type("AWS::Lambda::Function") if "AdjusterFunction" in name)
    function = {"Fn::GetAtt": [adjuster, "Arn"]}
    subscription = dict(synthesis.part("AWS::SNS::Subscription", "MonitoringBudget")["Properties"])
    assert subscription.pop("RedrivePolicy")["deadLetterTargetArn"]["Fn::GetAtt"][0].startswith(
        "ClusterCoordinationDeadLetters"
    )
    assert subscription == {"Endpoint": function, "Protocol": "lambda", "TopicArn": {"Ref": used_up}}
    permission = synthesis.part("AWS::Lambda::Permission", "MonitoringBudget")["Properties"]
    assert (permission["FunctionName"], permission["Principal"]) == (function, "sns.amazonaws.com")
    assert permission["SourceArn"] == {"Ref": used_up}
    variables = synthesis.template["Resources"][adjuster]["Properties"]["Environment"]["Variables"]
    known = AdjusterSettings.from_environment({**variables, "DEEPLEARNING_BUDGET_TOPIC_ARN": "the topic"})
    assert (variables["DEEPLEARNING_BUDGET_TOPIC_ARN"], known.budget_topic_arn) == ({"Ref": used_up}, "the topic")
    https, budgets = synthesis.part("AWS::SNS::TopicPolicy", "UsedUp")["Properties"]["PolicyDocument"]["Statement"]
    assert https["Effect"] == "Deny"
    assert budgets["Principal"] == {"Service": "budgets.amazonaws.com"}
    assert budgets["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


@pytest.mark.parametrize("region", ["us-gov-west-1", "cn-north-1", "eusc-de-east-1"])
def test_budget_is_refused_where_aws_budgets_counts_no_dollars(make_stack, region):
    stack = make_stack(region=region)
    topic, queue, key = sns.Topic(stack, "Topic"), sqs.Queue(stack, "Queue"), kms.Key(stack, "Key")
    with pytest.raises(ValueError, match=rf"^spending\.monthly_budget_usd must be left out in {region}"):
        ClusterBudget(
            stack,
            "Budget",
            cluster="mine",
            monthly_usd=5000,
            alarm_topic=topic,
            stopped_by=None,
            dead_letters=queue,
            encryption_key=key,
        )
