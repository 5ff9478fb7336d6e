"""Each gate finds what it is for: typical holes, planted one by one."""

import functools
import re
import textwrap

import pytest

from tests.gates.acknowledgements import ACKNOWLEDGED, look_at_acknowledgements
from tests.gates.assembly import synthesize
from tests.gates.holes import HOLES
from tests.gates.presets import PRESETS
from tests.gates.process_gates import CHECKOV, check_with_bandit, check_with_checkov
from tests.gates.promises import NAMES, PROMISES, check_promises
from tests.gates.template_gates import LINT, NAG, REFEREES, VALIDATOR, judge, lint, look_with_cdk

TEMPLATE_GATES = {PROMISES: check_promises, LINT: lint, REFEREES: judge, ACKNOWLEDGED: look_at_acknowledgements}
PLANTED = [(name, gate) for name, hole in HOLES.items() for gate in hole.found_by]


def _keys(findings, gate):
    return {(finding.rule, finding.place) for finding in findings if finding.gate == gate}


def _keep(resources, template):
    template["Resources"] = resources


@pytest.fixture(scope="module")
def edited(sound):
    """Return each preset with each hole that is planted into its template."""
    return {
        name: sound(hole.preset).change(re.sub(r"\W", "-", name), hole.edit)
        for name, hole in HOLES.items()
        if hole.edit
    }


@pytest.fixture(scope="module")
def checked(sound, edited):
    """Return what checkov finds in what the holes changed, before and after, in one run."""
    pairs = []
    for name in [name for name, hole in HOLES.items() if CHECKOV in hole.found_by]:
        before, after = (each.template["Resources"] for each in (sound(HOLES[name].preset), edited[name]))
        changed = {key for key, entry in after.items() if before.get(key) != entry}
        for when, resources in (("before", before), ("after", after)):
            kept = {key: resources[key] for key in changed & set(resources)}
            if kept:
                cut = functools.partial(_keep, kept)
                pairs.append(edited[name].change(f"{edited[name].preset}-{when}", cut))
    return check_with_checkov(pairs)


@pytest.fixture(scope="module")
def found(sound, edited, checked, tmp_path_factory):
    """Return a function from a hole and a gate to what the gate finds because of the hole alone."""

    def look(name, gate):
        hole = HOLES[name]
        before = sound(hole.preset)
        if gate in {NAG, VALIDATOR}:
            folder = tmp_path_factory.mktemp("altered") / "out"
            has_validator = gate == VALIDATOR
            altered = synthesize(name, PRESETS[hole.preset], folder, alter=hole.alter, has_validator=has_validator)
            return _keys(look_with_cdk(altered), gate) - _keys(look_with_cdk(before), gate)
        if gate == CHECKOV:
            after, earlier = (
                _keys([each for each in checked if each.preset == f"{edited[name].preset}-{when}"], gate)
                for when in ("after", "before")
            )
            return after - earlier
        return _keys(TEMPLATE_GATES[gate](edited[name]), gate) - _keys(TEMPLATE_GATES[gate](before), gate)

    return look


@pytest.mark.parametrize(("name", "gate"), PLANTED, ids=[f"{name}, {gate}" for name, gate in PLANTED])
def test_a_planted_hole_is_found(found, name, gate):
    assert HOLES[name].found_by[gate] in {rule for rule, _ in found(name, gate)}


def test_every_hole_is_found_by_a_gate_and_every_gate_finds_one():
    gates = {gate for hole in HOLES.values() for gate in hole.found_by}
    assert gates == {NAG, VALIDATOR, LINT, REFEREES, CHECKOV, PROMISES, ACKNOWLEDGED}
    assert all(hole.found_by for hole in HOLES.values())


def test_every_promise_of_ours_has_a_hole_that_breaks_it():
    broken = {hole.found_by[PROMISES] for hole in HOLES.values() if PROMISES in hole.found_by}
    assert broken == NAMES


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("subprocess.run(command, shell=True)", "B602"),
        ("subprocess.run(command, shell=True)  # nosec", "B602"),
        ("urllib.request.urlopen(command)", "B310"),
        ("yaml.load(command)", "B506"),
    ],
)
def test_a_hole_in_a_program_is_found(tmp_path, line, rule):
    program = tmp_path / "planted.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import subprocess
            import urllib.request

            import yaml


            def run(command: str) -> None:
                {line}
            """
        )
    )
    assert rule in {finding.rule for finding in check_with_bandit([str(program)])}
