"""Literal texts of CloudFormation's intrinsic functions, which hold the settings of nodes."""

from collections.abc import Callable
from typing import Any


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
