"""Texts of policies with wildcards and policy variables."""

import re
from collections.abc import Mapping

Context = Mapping[str, tuple[str, ...]]
"""Condition keys in lower case, each with its values."""

_TOKEN = re.compile(r"\$\{([^}]*)\}|([*?])")
_VARIABLE = re.compile(r"\s*([^,\s]+)\s*(?:,\s*'([^']*)'\s*)?")
_LITERALS = frozenset("*?$")
ARN_PARTS = 6


class Pattern:
    """
    A text in which `*` stands for any characters, `?` for one, and `${key}` for a value of the request.

    The last is so with `has_variables`: from policy version 2012-10-17 on.
    """

    def __init__(
        self, text: str, *, has_variables: bool, has_wildcards: bool = True, ignores_case: bool = False
    ) -> None:
        self.text = text
        self._has_variables = has_variables and "${" in text
        self._has_wildcards = has_wildcards
        self._flags = re.DOTALL | (re.IGNORECASE if ignores_case else 0)
        self._fixed = None if self._has_variables else re.compile(self._translate({}) or "", self._flags)

    @property
    def keys(self) -> frozenset[str]:
        """Condition keys of its variables, in lower case."""
        names = (match[1] for match in _TOKEN.finditer(self.text) if match[1]) if self._has_variables else ()
        return frozenset(_split_variable(name)[0] for name in names if name not in _LITERALS)

    def is_match(self, value: str, context: Context) -> bool:
        """Return whether it stands for a value; never where a variable has no value and no default."""
        if self._fixed is not None:
            return self._fixed.fullmatch(value) is not None
        expression = self._translate(context)
        return expression is not None and re.fullmatch(expression, value, self._flags) is not None

    def _translate(self, context: Context) -> str | None:
        expression, end = "", 0
        for match in _TOKEN.finditer(self.text):
            expression += re.escape(self.text[end : match.start()])
            piece = self._translate_token(match, context)
            if piece is None:
                return None
            expression, end = expression + piece, match.end()
        return expression + re.escape(self.text[end:])

    def _translate_token(self, match: re.Match[str], context: Context) -> str | None:
        if match[2]:
            return (".*" if match[2] == "*" else ".") if self._has_wildcards else re.escape(match[2])
        if not self._has_variables:
            return re.escape(match[0])
        if match[1] in _LITERALS:
            return re.escape(match[1])
        key, default = _split_variable(match[1])
        values = context.get(key, () if default is None else (default,))
        return re.escape(values[0]) if len(values) == 1 else None


class ArnPattern:
    """An ARN with wildcards, whose parts are compared one by one: no wildcard reaches across a colon before them."""

    def __init__(self, text: str, *, has_variables: bool) -> None:
        self.text = text
        self.is_all = text == "*"
        self._parts = [Pattern(part, has_variables=has_variables) for part in split_arn(text)]

    @property
    def is_complete(self) -> bool:
        """True for a pattern with the six parts of an ARN, or for all."""
        return self.is_all or len(self._parts) == ARN_PARTS

    @property
    def keys(self) -> frozenset[str]:
        """Condition keys of its variables, in lower case."""
        return frozenset().union(*(part.keys for part in self._parts))

    def is_match(self, value: str, context: Context) -> bool:
        """Return whether it stands for an ARN."""
        if self.is_all:
            return True
        parts = split_arn(value)
        return len(parts) == len(self._parts) == ARN_PARTS and all(
            pattern.is_match(part, context) for pattern, part in zip(self._parts, parts, strict=True)
        )


def split_arn(text: str) -> list[str]:
    """Split an ARN into its six parts; a colon inside `${…}` belongs to a variable."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "{") - (character == "}")
        if character == ":" and depth <= 0 and len(parts) < ARN_PARTS:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _split_variable(name: str) -> tuple[str, str | None]:
    match = _VARIABLE.fullmatch(name)
    return ("", None) if match is None else (match[1].lower(), match[2])
