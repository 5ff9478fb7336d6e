"""The nodes' settings in the user data of a template: found, and changed where a rehearsal must."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from deeplearning_contract.document import read_record
from deeplearning_contract.setting_parts import EnvironmentSettings

_KEY = '"environment":'


def find_environment(template: Mapping[str, Any]) -> EnvironmentSettings | None:
    """Return the environment that the settings in the nodes' user data ask for; None for the image's own."""
    for data in find_launch_data(template):
        text = read_literals(data.get("UserData", ""))
        if _KEY in text:
            start = text.index(_KEY) + len(_KEY)
            document = json.JSONDecoder().raw_decode(text[start:].lstrip())[0]
            return None if document is None else read_record(EnvironmentSettings, document, "environment")
    return None


def find_launch_data(template: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what the launch templates of a template say of their instances."""
    for resource in template.get("Resources", {}).values():
        if resource["Type"] == "AWS::EC2::LaunchTemplate":
            yield resource["Properties"]["LaunchTemplateData"]


def read_literals(value: Any) -> str:
    """Return the text of an intrinsic; what is known at deployment only is left out."""
    texts: list[str] = []

    def keep(text: str) -> str:
        texts.append(text)
        return text

    map_literals(value, keep)
    return "".join(texts)


def map_literals(value: Any, change: Callable[[str], str]) -> Any:
    """Return an intrinsic whose literal texts are changed; what is known at deployment only stays."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict) and "Fn::Base64" in value:
        return {"Fn::Base64": map_literals(value["Fn::Base64"], change)}
    if isinstance(value, dict) and "Fn::Join" in value:
        separator, parts = value["Fn::Join"]
        return {"Fn::Join": [separator, [change(part) if isinstance(part, str) else part for part in parts]]}
    return value
