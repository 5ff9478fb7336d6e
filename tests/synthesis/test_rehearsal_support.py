"""Everything that the presets of the gates emit, held against the table of supported resources and the engine."""

import pytest

from cdk_rehearsal.referees.resolved_template import ResolvedTemplate
from cdk_rehearsal.referees.resource_support import find_gaps
from cdk_rehearsal.referees.validation_engine import judge_with_engine
from tests.gates.presets import PRESETS

_NOT_REHEARSED = ("type AWS::SageMaker::NotebookInstance", "type AWS::SageMaker::NotebookInstanceLifecycleConfig")
"""A notebook is not rehearsed."""


@pytest.mark.parametrize("preset", PRESETS)
def test_a_rehearsal_takes_everything_that_a_preset_emits(synthesize, preset):
    for template in synthesize(PRESETS[preset]).values():
        assert [gap for gap in find_gaps(template) if not gap.endswith(_NOT_REHEARSED)] == []
        assert list(judge_with_engine(ResolvedTemplate(template, "us-east-1"))) == []
