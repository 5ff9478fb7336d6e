"""
Logical ids of every preset, and the template of the default one: running stacks depend on them.

    python -m tests.synthesis.golden    # writes logical_ids.json and template.json anew, one id and one property a line
"""

import json
import re
from pathlib import Path

import aws_cdk as cdk

from stacks.cluster_stack import make_stack
from stacks.context import read_choices
from tests.gates.presets import PRESETS
from tests.records import write_records

IDS = Path(__file__).with_name("logical_ids.json")
TEMPLATE = Path(__file__).with_name("template.json")
WRITE = "if that is meant: python -m tests.synthesis.golden"


def list_logical_ids(template):
    """Return logical id and type of every resource of a template."""
    return {f"{name} {resource['Type']}" for name, resource in template["Resources"].items()}


def read_logical_ids(preset):
    """Return logical id and type of every resource that a preset has in the golden file."""
    return {entry for entry, presets in json.loads(IDS.read_text()).items() if preset in presets}


def find_differences(golden, found):
    """Return a line for each path whose value is another, or that is on one side only."""
    names = sorted(name for name in golden | found if golden.get(name) != found.get(name))
    return [f"{name}: {json.dumps(golden.get(name))} -> {json.dumps(found.get(name))}" for name in names]


def flatten(template):
    """
    Return path -> value, a path for each output, attribute and property.

    What changes with the programs and not with the stack is left out: digests, and user data but its settings.
    """
    document = json.loads(re.sub(r"\b[0-9a-f]{64}\b", "<digest>", json.dumps(template)))
    for entry in document["Resources"].values():
        data = entry.get("Properties", {}).get("LaunchTemplateData")
        if data:
            data["UserData"] = read_settings(data["UserData"]["Fn::Base64"])
    return dict(_list_paths(document))


def read_settings(user_data):
    """Return the settings in a node's user data, with placeholders for what the stack fills in."""
    parts = user_data["Fn::Join"][1]
    text = "".join(part if isinstance(part, str) else f"<{next(iter(part.values()))}>" for part in parts)
    return text.split("<<'SETTINGS'\n")[1].split("\nSETTINGS\n")[0]


def _list_paths(document):
    yield "Description", document["Description"]
    for name, output in document["Outputs"].items():
        yield f"Outputs.{name}", output
    for name, resource in document["Resources"].items():
        for key, value in resource.items():
            if key != "Properties":
                yield f"{name}.{key}", value
        for key, value in resource.get("Properties", {}).items():
            yield f"{name}.Properties.{key}", value


def main():
    """Synthesize every preset and write the golden files."""
    ids = {}
    for preset, context in PRESETS.items():
        app = cdk.App(analytics_reporting=False, builtin_cloud_formation_validation=False)
        (choice,) = read_choices(context)
        make_stack(app, choice)
        template = app.synth().stacks[0].template
        for entry in list_logical_ids(template):
            ids.setdefault(entry, []).append(preset)
        if preset == "default":
            TEMPLATE.write_text(write_records(flatten(template), 1) + "\n")
    IDS.write_text(write_records(dict(sorted(ids.items())), 1) + "\n")


if __name__ == "__main__":
    main()
