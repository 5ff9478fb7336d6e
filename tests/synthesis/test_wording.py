"""An error of the context has the words of the context: no class, call or spelling of Python."""

import json
import re

import aws_cdk as cdk
import pytest

from stacks.cluster_stack import PLATFORMS, make_stack
from stacks.context import read_choices
from stacks.reader import list_keys
from stacks.wording import word_for_context

HOSTILE = ("nonsense text", "-1", "x" * 300, '{"a": 1}', "[1]", 12345678901)
PYTHON = re.compile(r"\w\(|\bself\b|\bTrue\b|\bFalse\b|\bpass one$|^[a-z]\w*=")


def _refuse(platform, key, value):
    context = {"platform": platform, key: value}
    if platform == "ec2" and not key.startswith("workers"):
        context["workers.instance_type"] = "m5.large"
    try:
        make_stack(cdk.App(), read_choices(context)[0])
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("platform", PLATFORMS)
def test_no_remedy_for_a_key_of_the_context_is_written_for_python(platform):
    refused = {
        key: {value: _refuse(platform, key, value) for value in HOSTILE} for key in list_keys(PLATFORMS[platform].kind)
    }
    assert all(any(messages.values()) for messages in refused.values())
    for key, messages in refused.items():
        for message in filter(None, messages.values()):
            # A part alone may be refused for what is missing beside it.
            assert message.startswith((key, f"{key.rpartition('.')[0]} must have ")), message
            problem, semicolon, remedy = message.partition("; ")
            assert semicolon, message
            assert not PYTHON.search(remedy), message
            assert "\n" not in problem


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("software.environment", "nope.txt", "software.environment must be a file, got 'nope.txt'; pass its path"),
        ("software.environment", '{"path": "nope.txt"}', "software.environment.path must be a file, got 'nope.txt'; "),
        ("workers.purchase", "reservation:x", "workers.purchase"),
        (
            "workers.purchase",
            '{"kin": "spot"}',
            "workers.purchase must have only known props, got 'kin'; did you mean k",
        ),
        (
            "alarm_topic",
            "topic",
            "alarm_topic must be an ITopic, got 'topic'; pass e.g. arn:aws:sns:region:account:name",
        ),
        ("workers.volume_size", "9x", "workers.volume_size must have a unit, got '9x'; write e.g. 300GiB"),
    ],
)
def test_a_message_names_the_key_as_the_user_wrote_it(key, value, message):
    assert _refuse("ec2", key, value).startswith(message)


def test_values_of_python_are_spelled_as_the_context_reads_them():
    for python, context in (
        ("pass e.g. Duration.hours(1), or Size.gibibytes(300)", "pass e.g. 1h, or 300GiB"),
        ("pass NodeImage.deep_learning_ubuntu()", "pass deep-learning-ubuntu"),
        ("pass JobEnvironment.none() or JobEnvironment.with_horovod()", "pass none or horovod"),
        ("pass a list, e.g. [DataSource(…)]", "pass a list, e.g. an object of its keys in JSON"),
    ):
        assert word_for_context(f"x must be y, got {json.dumps('Duration.hours(1)')}; {python}") == (
            f'x must be y, got "Duration.hours(1)"; {context}'
        )


def test_a_warning_of_the_constructs_is_for_both():
    # The app and Python name a prop alike; a warning cannot know who wrote it.
    for platform, prop in (("ec2", "spending.stop_when_idle"), ("emr", "stop_when_idle")):
        stack = make_stack(cdk.App(), read_choices({"platform": platform})[0])
        metadata = [str(entry.data) for entry in stack.cluster.node.metadata if entry.type == "aws:cdk:warning"]
        (warning,) = (text for text in metadata if "nothing stops this cluster" in text)
        assert f"; set {prop}, such as to one hour" in warning
        assert not any(" -c " in text or PYTHON.search(text) for text in metadata)
