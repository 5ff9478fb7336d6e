"""Rules that props have in common: texts of a form, numbers, times and sizes in a range."""

import re
from datetime import timedelta
from pathlib import Path

from aws_cdk import Duration, Size, SizeRoundingBehavior

from deeplearning_cdk.props.check import Rule, is_token

_TOKEN = re.compile(r"\$\{Token\[[^]]*]}")
_ARN = re.compile(r"arn:[a-z-]+:[a-z]+:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9/_.-]+")
_PLAIN = re.compile(r"[A-Za-z0-9._:/@-]*")


def matching(pattern: str, must: str, remedy: str, *, takes_tokens: bool = False) -> Rule:
    """Return the rule that a text matches a regular expression, which `must` describes in words."""
    form = re.compile(pattern)
    return Rule(
        must=must,
        remedy=remedy,
        is_kept=lambda text: bool(form.fullmatch(text)),
        # The template carries the text beside the token too.
        can_carry=_is_plain if takes_tokens else None,
    )


def is_arn(service: str, text: str) -> bool:
    """Return whether a text is an ARN of a service, by its name in ARNs, or a token that may be one."""
    return _is_plain(text) if is_token(text) else bool(_ARN.fullmatch(text)) and text.split(":")[2] == service


def _is_plain(text: str) -> bool:
    """Return whether a text is plain beside its tokens."""
    return bool(_PLAIN.fullmatch(_TOKEN.sub("", text)))


def between(least: float, most: float, remedy: str, *, unit: str = "", takes_tokens: bool = False) -> Rule:
    """Return the rule that a number is in a range, both ends included."""
    must = f"be from {least} to {most}{unit and ' '}{unit}"
    return Rule(
        must=must,
        remedy=remedy,
        is_kept=lambda number: least <= number <= most,
        can_carry=(lambda _: True) if takes_tokens else None,
    )


def lasting(least: str, most: str, remedy: str) -> Rule:
    """Return the rule that a time is in a range, such as `10 minutes` to `12 hours`, and whole seconds, AWS's unit."""
    first, last = (timedelta(**{unit: int(number)}).total_seconds() for number, unit in (least.split(), most.split()))

    def is_kept(time: Duration) -> bool:
        seconds = time.to_seconds(integral=False)
        return first <= seconds <= last and seconds % 1 == 0

    return Rule(must=f"be whole seconds from {least} to {most}", remedy=remedy, is_kept=is_kept)


def sized(least: int, most: int, remedy: str) -> Rule:
    """Return the rule that a size is whole GiB in a range of GiB; a template can carry a token of GiB."""
    return Rule(
        must=f"be whole GiB from {least} to {most}",
        remedy=remedy,
        is_kept=lambda size: least <= count_gibibytes(size) <= most and count_gibibytes(size) % 1 == 0,
        can_carry=lambda size: not isinstance(size, Size) or _is_of_gibibytes(size),
    )


def count_gibibytes(size: Size | int) -> float:
    """Return a size in GiB; a number is GiB already."""
    return size.to_gibibytes(rounding=SizeRoundingBehavior.NONE) if isinstance(size, Size) else size


def count_mebibytes(size: Size) -> float:
    """Return a size in MiB."""
    return size.to_mebibytes(rounding=SizeRoundingBehavior.NONE)


def is_file(path: str) -> bool:
    """Return whether a text is the path of a file; any text is allowed."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def _is_of_gibibytes(size: Size) -> bool:
    """Return whether a size that is a token is in GiB; the CDK converts no other."""
    try:
        size.to_gibibytes()
    except RuntimeError:
        return False
    return True
