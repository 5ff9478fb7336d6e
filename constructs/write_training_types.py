# ruff: noqa: INP001 - constructs/ is a source root, and this script is not part of the library
"""
Write the instance types of SageMaker's training jobs from the service model that botocore carries.

    python constructs/write_training_types.py

Run it after botocore is updated, review the difference, and commit the result. The library reads only the resulting
file, never botocore.
"""

import json
from importlib.metadata import version
from pathlib import Path

import botocore.session

TARGET = Path(__file__).parent / "deeplearning_cdk" / "sagemaker" / "training_types.json"


def render() -> str:
    """Return the types as JSON, one a line, without `ml.` before each."""
    model = botocore.session.get_session().get_service_model("sagemaker")
    types = sorted(name.removeprefix("ml.") for name in model.shape_for("TrainingInstanceType").enum)
    source = f"TrainingInstanceType of SageMaker, as botocore {version('botocore')} carries it"
    lines = ",\n".join(json.dumps(name) for name in types)
    return f'{{\n"source": {json.dumps(source)},\n"types": [\n{lines}\n]\n}}\n'


if __name__ == "__main__":
    TARGET.write_text(render())
