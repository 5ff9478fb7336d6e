"""The page of a cluster with further candidates says which is asked, since and until when, and what follows."""

import itertools
import json
from dataclasses import asdict, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capacity_adjuster.aws.state_table import StateTable
from capacity_adjuster.policy.candidate_search import CandidateSearch, Refusal, Rest, Stage, list_contents
from deeplearning_cli.status import _summarize
from deeplearning_contract.cluster_state import CapacityAttempt, ClusterState, Phase
from deeplearning_contract.launch_failures import Scope
from deeplearning_contract.settings import AdjusterSettings
from deeplearning_view import aws_reader
from deeplearning_view.aws_responses import SEARCH_VARIABLES, AwsResponses, has_end
from deeplearning_view.rendering import describe_capacity, render_text
from deeplearning_view.resources import GROUP, find_groups
from deeplearning_view.view_builder import make_view
from tests.unit.deeplearning_view.cluster_responses import (
    MASTER_ID,
    SECONDS,
    WORKER_ID,
    make_failed_launch,
    make_group,
    make_instance,
    make_item,
    make_resource,
    make_responses,
    make_template,
)

IDS = Path(__file__).parents[2] / "synthesis" / "logical_ids.json"
BEGUN = int(SECONDS)
FIRST, SPOT, OTHER = "0", "us-east-1b-p4d.24xlarge-spot-1f3a", "us-east-1c-p4de.24xlarge-0a1b"
ORDER = (FIRST, SPOT, OTHER)
WORDS = {
    FIRST: "p4d.24xlarge in us-east-1a",
    SPOT: "p4d.24xlarge in us-east-1b, spot",
    OTHER: "p4de.24xlarge in us-east-1c",
}
ZONES = {name: words.partition(" in ")[2].partition(",")[0] for name, words in WORDS.items()}
PATIENCE, SEARCH = 180, 1500
REFUSAL = Refusal(Scope.CANDIDATE, "InsufficientInstanceCapacity", 3, 8)
CONTENTS = list_contents(ORDER, "us-east-1a-p4d.24xlarge-on-demand-0000")
ASKING = CandidateSearch(1, FIRST, Stage.ASKING, began=BEGUN, since=BEGUN)
LEAVING = ASKING.leave(REFUSAL, CONTENTS, BEGUN + 89)
NEXT = LEAVING.ask_next(ORDER, BEGUN + 120, patience_seconds=PATIENCE, search_seconds=SEARCH)


def make_settings():
    settings = AdjusterSettings(
        cluster="training-1",
        state_table="states",
        master_queue_url="q",
        signal_url="s",
        worker_min_capacity=6,
        settle_seconds=5,
        candidates=",".join(ORDER),
        patience_seconds=PATIENCE,
        search_seconds=SEARCH,
    )
    return {name: value for name, value in settings.to_environment().items() if name in SEARCH_VARIABLES}


def make_candidate(candidate, role, desired=0, instances=()):
    name = f"{role}s-{candidate}"
    group = make_group(name, role, desired, instances, AvailabilityZones=[ZONES[candidate]])
    group["Tags"].append({"Key": "deeplearning:candidate", "Value": candidate})
    return group


def make_item_of(search):
    """The form of `StateTable.write`, which a test below holds to it."""
    return {"revision": {"N": str(search.revision)}, "document": {"S": json.dumps(asdict(search), sort_keys=True)}}


def make_search(record, asked=None, launched=3, **changes):
    """A cluster whose adjuster searches, with workers of one candidate, unless something is changed."""
    ids = [f"i-{number:017x}" for number in range(launched)]
    groups = []
    for name in ORDER:
        workers, masters = ((8, ids), (1, [MASTER_ID])) if name == asked else ((0, ()), (0, ()))
        groups += [make_candidate(name, "worker", *workers), make_candidate(name, "master", *masters)]
    names = [group["AutoScalingGroupName"] for group in groups]
    types = {f"workers-{name}": WORDS[name].partition(" ")[0] for name in ORDER}
    templates = {name: make_template() | {"InstanceType": types.get(name, "m7i.2xlarge")} for name in names}
    templates[f"workers-{SPOT}"]["InstanceMarketOptions"] = {"MarketType": "spot"}
    resources = [
        make_resource(f"Nodes{number}{'MasterGroup' if name.startswith('m') else 'WorkersGroup'}", GROUP, name)
        for number, name in enumerate(names)
    ]
    given = {
        "item": None,
        "search": make_item_of(record) if record else None,
        "search_settings": make_settings(),
        "groups": groups,
        "templates": templates,
        "instances": [make_instance(MASTER_ID, "master", "10.0.0.4")],
        "activities": {},
        "events": [],
        "resources": resources,
    }
    return make_responses("CREATE_IN_PROGRESS", **given | changes)


def look(responses, seconds=100):
    return make_view(responses, datetime.fromtimestamp(BEGUN + seconds, timezone.utc))


def read_rows(responses, seconds=100):
    """Return the rows of the page about the capacity, unwrapped."""
    lines = render_text(look(responses, seconds)).splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("capacity"))
    rest = itertools.takewhile(lambda line: line.startswith(" "), lines[begin + 1 :])
    return "\n".join(line[11:] for line in (lines[begin], *rest)).replace("\n  ", " ").splitlines()


ATTEMPT = f"{WORDS[FIRST]}: InsufficientInstanceCapacity, 3 of 8 after 1 min 29 s"


def test_a_candidate_that_is_asked_shows_what_launched_since_and_until_when_and_what_follows():
    head = f"asking 1 of 3: {WORDS[FIRST]}, 3 of 8, since 10:00:00 UTC, until 10:03:00 UTC; then {WORDS[SPOT]}"
    assert read_rows(make_search(ASKING, FIRST)) == [head]


def test_a_candidate_that_is_not_asked_yet_has_no_times():
    rows = read_rows(make_search(NEXT))
    assert rows == [f"asking 2 of 3: {WORDS[SPOT]}, not yet requested", ATTEMPT]


def test_a_candidate_that_is_left_shows_what_is_not_gone_yet_and_what_follows():
    head = f"leaving 1 of 3: {WORDS[FIRST]}, 3 nodes are not gone yet, since 10:01:29 UTC; then {WORDS[SPOT]}"
    assert read_rows(make_search(LEAVING, FIRST, launched=2)) == [head, ATTEMPT]


def test_while_every_candidate_rests_the_page_shows_until_when_and_which_is_asked_then():
    ends = {FIRST: Rest(BEGUN + 400, 180), SPOT: Rest(BEGUN + 300, 180), OTHER: Rest(BEGUN + 500, 180)}
    rows = read_rows(make_search(replace(LEAVING, stage=Stage.RESTING, resting=ends)))
    assert rows[0] == f"every candidate rests, since 10:01:29 UTC, until 10:05:00 UTC; then {WORDS[SPOT]}"
    assert rows[1:] == [ATTEMPT]


def make_found(**changes):
    attempts = LEAVING.attempts
    workers = tuple(f"i-{number:017x}" for number in range(8))
    text = make_item(Phase.FORMED, (MASTER_ID, WORKER_ID))
    state = ClusterState.from_item(text)
    state = replace(state, requested=9, expected=(MASTER_ID, *workers), candidate=SPOT, attempts=attempts)
    return replace(state, **changes).to_item()


def test_a_cluster_that_found_capacity_shows_where_and_each_earlier_attempt():
    rows = read_rows(make_search(None, SPOT, item=make_found()))
    assert rows == [f"2 of 3: {WORDS[SPOT]}, 8 of 8", ATTEMPT]


def test_a_search_that_found_nothing_shows_every_attempt():
    last = CapacityAttempt(SPOT, WORDS[SPOT], 0, 8, "InsufficientSpotCapacity", BEGUN + 120, BEGUN + 300)
    attempts = (*LEAVING.attempts, last)
    item = make_found(phase=Phase.FAILED, expected=(), members=(), user_key="", attempts=attempts)
    rows = read_rows(make_search(None, item=item))
    assert rows == [
        f"no candidate has enough; 2 of 3 were asked, the last {WORDS[SPOT]}",
        ATTEMPT,
        f"{WORDS[SPOT]}: InsufficientSpotCapacity, 0 of 8 after 3 min 0 s",
    ]


def test_a_cluster_that_failed_with_nodes_shows_where_they_were():
    rows = read_rows(make_search(None, SPOT, item=make_found(phase=Phase.FAILED)))
    assert rows[0] == f"2 of 3: {WORDS[SPOT]}, 8 of 8"


def test_a_candidate_that_is_asked_while_the_others_rest_is_followed_by_a_rest():
    resting = {name: Rest(BEGUN + 900, 180) for name in (SPOT, OTHER)}
    assert look(make_search(replace(ASKING, resting=resting), FIRST)).capacity.then == "every other candidate rests"


def test_the_document_for_programs_has_the_same():
    document = look(make_search(NEXT.count_from(BEGUN + 130), SPOT, launched=5)).to_document()["capacity"]
    (attempt,) = document.pop("attempts")
    assert document == {
        "stage": "asking",
        "candidate": SPOT,
        "words": WORDS[SPOT],
        "position": 2,
        "count": 3,
        "launched": 5,
        "requested": 8,
        "since": "2026-11-22T10:02:10+00:00",
        "until": "2026-11-22T10:05:10+00:00",
        "then": WORDS[OTHER],
    }
    assert (attempt["candidate"], attempt["ended"]) == (FIRST, "2026-11-22T10:01:29+00:00")


def test_both_groups_of_each_candidate_are_found_by_their_ids():
    entries = [name.split() for name, presets in json.loads(IDS.read_text()).items() if "fallbacks" in presets]
    groups = [name for name, kind in entries if kind == GROUP]
    found = find_groups([make_resource(name, GROUP, name) for name in groups])
    assert set(found) == set(groups)
    assert len(groups) >= 4
    assert list(found.values()).count("master") == list(found.values()).count("worker") == len(groups) / 2


def test_a_cluster_without_further_candidates_shows_nothing_of_a_search():
    view = look(make_responses())
    assert "capacity" not in view.to_document()
    assert "capacity" not in render_text(view)
    assert look(make_responses("CREATE_IN_PROGRESS", item=None)).capacity is None


@pytest.mark.parametrize("candidate", [FIRST, OTHER, "removed", ""])
@pytest.mark.parametrize("seconds", [100, SEARCH - PATIENCE, SEARCH - PATIENCE + 1])
@pytest.mark.parametrize("stage", [Stage.LEAVING, Stage.RESTING])
def test_what_follows_is_what_the_adjuster_does(stage, seconds, candidate):
    for ends in itertools.product((None, 50, 100, 200, 2000), repeat=len(ORDER)):
        resting = {name: Rest(BEGUN + end, 180) for name, end in zip(ORDER, ends, strict=True) if end is not None}
        search = replace(LEAVING, stage=stage, candidate=candidate, resting=resting)
        shown = look(make_search(search), seconds).capacity
        is_resting = stage is Stage.RESTING
        at = int(datetime.fromisoformat(shown.until).timestamp()) if is_resting else BEGUN + seconds
        following = search.ask_next(ORDER, at, patience_seconds=PATIENCE, search_seconds=SEARCH)
        if following is None:
            assert shown.then == "the search is over", ends
        elif following.stage is Stage.RESTING:
            assert shown.then == "every candidate rests", ends
        else:
            assert shown.then == WORDS[following.candidate], ends


def test_without_the_adjusters_settings_the_page_shows_what_is_known():
    (row, _) = read_rows(make_search(NEXT.count_from(BEGUN + 130), SPOT, search_settings={}))
    assert row == f"asking {WORDS[SPOT]}, 3 of 8, since 10:02:10 UTC"
    assert read_rows(make_search(LEAVING, search_settings={}))[0].endswith("since 10:01:29 UTC")


def test_a_candidate_whose_groups_are_gone_has_the_adjusters_words():
    rows = read_rows(make_search(None, item=make_found(candidate=FIRST), groups=[], templates={}))
    assert rows[0] == f"1 of 3: {WORDS[FIRST]}, 8 of 8"


def test_a_record_that_cannot_be_read_is_said_and_the_rest_of_the_page_is_there():
    view = look(make_search(None, search={"document": {"S": '{"candidate": "0"}'}}))
    assert view.capacity is None
    assert view.unread == (
        "the record of the search for capacity: search.stage must be one of ['asking', 'leaving', 'resting'], got None",
    )
    assert view.nodes


NUMBERS = st.integers() | st.integers(BEGUN - 1000, BEGUN + 5000)
NAMES = st.text() | st.sampled_from(ORDER)


@given(
    st.fixed_dictionaries(
        {"candidate": NAMES, "stage": st.sampled_from(Stage), "began": NUMBERS},
        optional={"since": NUMBERS, "resting": st.dictionaries(NAMES, st.fixed_dictionaries({"until": NUMBERS}))},
    )
    | st.dictionaries(NAMES, NUMBERS)
)
def test_any_record_is_a_page_without_control_characters_or_a_failed_read(document):
    view = look(make_search(None, FIRST, search={"document": {"S": json.dumps(document)}}))
    assert (view.capacity is None) == bool(view.unread)
    assert all(line.isprintable() for line in render_text(view).splitlines())


def test_words_of_the_state_item_are_shown_without_control_characters():
    evil = replace(LEAVING.attempts[0], words="a\x1b[31mb", kind="c\nd", began=10**30)
    rows = read_rows(make_search(None, SPOT, item=make_found(attempts=(evil,))))
    assert rows[1] == "a [31mb: c d, 3 of 8"


def test_the_record_of_a_search_is_no_longer_shown_when_the_stack_has_failed():
    responses = make_search(ASKING, FIRST)
    responses.stack["StackStatus"] = "ROLLBACK_IN_PROGRESS"
    assert look(responses).capacity is None


def test_launches_that_a_left_candidate_refused_are_past_while_another_is_asked():
    activities = {f"workers-{FIRST}": [make_failed_launch("no p4d in us-east-1a")]}
    asking, leaving = (
        look(make_search(search, asked, activities=activities)).problems
        for search, asked in ((NEXT.count_from(BEGUN + 130), SPOT), (LEAVING, FIRST))
    )
    assert [(problem.what, problem.is_past) for problem in (*asking, *leaving)] == [
        (f"launch of worker for {WORDS[FIRST]}", True),
        (f"launch of worker for {WORDS[FIRST]}", False),
    ]


def test_launches_that_the_adjuster_suspends_to_leave_a_candidate_are_no_warning():
    suspended = [{"ProcessName": "Launch", "SuspensionReason": "User suspended at 10:01"}]
    responses = make_search(LEAVING, FIRST)
    for group in responses.groups:
        group["SuspendedProcesses"] = suspended if group["AutoScalingGroupName"] == f"workers-{FIRST}" else []
    assert look(responses).warnings == ()
    responses.search = make_item_of(NEXT)
    assert [text.split()[2] for text in look(responses).warnings] == [f"workers-{FIRST}"]


def test_a_watch_prints_each_step_of_the_search_once():
    first, later = (look(make_search(ASKING, FIRST), seconds) for seconds in (10, 60))
    assert set(describe_capacity(first.capacity)) <= set(_summarize(first))
    assert _summarize(first) == _summarize(later)


class Adjuster:
    """A client of Lambda that returns the variables of an adjuster which stops nothing."""

    def get_function_configuration(self, **_):
        return {"Environment": {"Variables": make_settings() | {"DEEPLEARNING_SIGNAL_URL": "secret"}}}


def test_the_settings_of_the_search_are_read_and_are_no_end_of_the_cluster():
    responses = make_search(ASKING, FIRST, search_settings={})
    responses.resources.append(make_resource("CapacityAdjusterFunction1", "AWS::Lambda::Function", "adjuster"))
    responses.limits = aws_reader._Reader(lambda _name: Adjuster(), responses)._read_limits()
    assert responses.search_settings == make_settings()
    assert not has_end(responses.limits, responses.templates)
    again = AwsResponses.from_json(responses.to_json())
    assert look(again).capacity == look(responses).capacity == look(make_search(ASKING, FIRST)).capacity


class Table:
    """Clients of moto, of which a call of `get_item` is kept."""

    def __init__(self):
        self.keys = []

    def __call__(self, name):
        client = boto3.client(name)
        client.meta.events.register("provide-client-params.dynamodb.GetItem", self._keep)
        return client

    def _keep(self, params, **_):
        self.keys.append(params["Key"]["cluster"]["S"])


@pytest.fixture
def table(aws):
    boto3.client("dynamodb").create_table(
        TableName="states",
        KeySchema=[{"AttributeName": "cluster", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "cluster", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return Table()


def read_again(clients, responses):
    responses.resources = [make_resource("ClusterCoordinationStateTable1", "AWS::DynamoDB::Table", "states")]
    responses.search = responses.item = None
    aws_reader._Reader(clients, responses)._read_state()
    return clients.keys


def test_the_record_is_read_as_the_adjuster_writes_it(table):
    assert StateTable(boto3.client("dynamodb"), "states", "training-1").write(ASKING)
    responses = make_search(None, FIRST)
    assert read_again(table, responses) == ["training-1", "training-1#search"]
    assert look(responses).capacity == look(make_search(ASKING, FIRST)).capacity


def test_a_cluster_with_one_candidate_costs_no_further_read(table):
    assert read_again(table, make_responses()) == ["training-1"]


def test_a_verdict_ends_the_search_whatever_its_record_says(table):
    assert StateTable(boto3.client("dynamodb"), "states", "training-1").write(ASKING)
    boto3.client("dynamodb").put_item(TableName="states", Item=make_found())
    responses = make_search(None, SPOT)
    assert read_again(table, responses) == ["training-1"]
    assert look(responses).capacity.stage == "found"


def test_a_reserved_candidate_is_named_so():
    responses = make_search(ASKING, FIRST)
    for group in responses.groups:
        group["CapacityReservationSpecification"] = {"CapacityReservationPreference": "default"}
        if group["AutoScalingGroupName"] == f"workers-{FIRST}":
            preference = {"CapacityReservationPreference": "capacity-reservations-only"}
            group["CapacityReservationSpecification"] = preference
    asked, following = (look(replace(responses, search=make_item_of(each))).capacity for each in (ASKING, NEXT))
    assert (asked.words, following.words) == (f"{WORDS[FIRST]}, reserved", WORDS[SPOT])
    after = look(replace(responses, search=make_item_of(NEXT.count_from(BEGUN + 130)))).capacity
    assert after.then == WORDS[OTHER]


def test_the_patience_of_a_candidate_ends_with_the_search():
    late = replace(ASKING, since=BEGUN + SEARCH - 60)
    capacity = look(make_search(late, FIRST), SEARCH - 50).capacity
    end = datetime.fromtimestamp(BEGUN, timezone.utc) + timedelta(seconds=SEARCH)
    assert (capacity.until, capacity.then) == (end.isoformat(), "the search is over")
