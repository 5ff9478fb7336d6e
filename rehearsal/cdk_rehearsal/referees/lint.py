"""Cfn-lint, whose rules are loaded once in a process."""

import functools
import json
from collections.abc import Mapping
from typing import Any

from cfnlint.config import ConfigMixIn
from cfnlint.decode import decode_str
from cfnlint.rules import Match, Rules
from cfnlint.runner import Runner, run_template_by_data


def lint_template(template: Mapping[str, Any], **choices: Any) -> list[Match]:
    """Return what cfn-lint finds in a template, with choices by the names of its configuration file."""
    decoded, errors = decode_str(json.dumps(template))
    # Not cfnlint.api.lint: it takes a RulesCollection, of cfn-lint 0, and loads the rules anew in place of any other.
    return errors or list(run_template_by_data(decoded, ConfigMixIn(**choices), _load_rules()))


@functools.cache
def _load_rules() -> Rules:
    return Runner(ConfigMixIn()).rules
