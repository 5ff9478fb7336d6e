"""The rules that props have in common: texts of a form, numbers, times and sizes between two ends."""

import re
from pathlib import Path

from aws_cdk import Duration, Size, SizeRoundingBehavior

from deeplearning_cdk.props.check import Rule, is_token

_TOKEN = re.compile(r"\$\{Token\[[^]]*]}")
_ARN = re.compile(r"arn:[a-z-]+:[a-z]+:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9/_.-]+")
_PLAIN = re.compile(r"[A-Za-z0-9._:/@-]*")


def matching(pattern: str, must: str, remedy: str, *, takes_tokens: bool = False) -> Rule:
    """
    Return the rule that a text is of a form.

    Args:
        pattern: The form as a regular expression.
        must: The form in words.
        remedy: What the user can do.
        takes_tokens: Whether the template can carry it. Default: it must be known at synth.
    """
    form = re.compile(pattern)
    return Rule(
        must=must,
        remedy=remedy,
        is_kept=lambda text: bool(form.fullmatch(text)),
        # What stands beside the token is carried too.
        can_carry=_is_plain if takes_tokens else None,
    )


def is_arn(service: str, text: str) -> bool:
    """
    Tell whether a text is the ARN of something of a service, or a token that may be one.

    Args:
        service: The service's name in ARNs.
        text: The text.
    """
    return _is_plain(text) if is_token(text) else bool(_ARN.fullmatch(text)) and text.split(":")[2] == service


def _is_plain(text: str) -> bool:
    """Tell whether the rest of a text is plain beside its tokens."""
    return bool(_PLAIN.fullmatch(_TOKEN.sub("", text)))


def between(least: float, most: float, remedy: str, *, unit: str = "", takes_tokens: bool = False) -> Rule:
    """
    Return the rule that a number lies between two ends, which belong to it.

    Args:
        least: The lower end.
        most: The upper end.
        remedy: What the user can do.
        unit: Unit of the number, for the error. Default: none.
        takes_tokens: Whether the template can carry it. Default: it must be known at synth.
    """
    must = f"be from {least} to {most}{unit and ' '}{unit}"
    return Rule(
        must=must,
        remedy=remedy,
        is_kept=lambda number: least <= number <= most,
        can_carry=(lambda _: True) if takes_tokens else None,
    )


def lasting(least: Duration, most: Duration, remedy: str) -> Rule:
    """
    Return the rule that a time lies between two ends and is whole seconds, which is what AWS counts in.

    Args:
        least: The shortest.
        most: The longest.
        remedy: What the user can do.
    """
    ends = (least.to_milliseconds(), most.to_milliseconds())

    def is_kept(time: Duration) -> bool:
        milliseconds = time.to_seconds(integral=False) * 1000
        return ends[0] <= milliseconds <= ends[1] and milliseconds % 1000 == 0

    must = f"be whole seconds from {least.to_human_string()} to {most.to_human_string()}"
    return Rule(must=must, remedy=remedy, is_kept=is_kept)


def sized(least: int, most: int, remedy: str) -> Rule:
    """
    Return the rule that a size is whole GiB between two ends; a template can carry a token of GiB.

    Args:
        least: The smallest, in GiB.
        most: The largest, in GiB.
        remedy: What the user can do.
    """
    return Rule(
        must=f"be whole GiB from {least} to {most}",
        remedy=remedy,
        is_kept=lambda size: least <= count_gibibytes(size) <= most and count_gibibytes(size) % 1 == 0,
        can_carry=lambda size: not isinstance(size, Size) or _is_of_gibibytes(size),
    )


def count_gibibytes(size: Size | int) -> float:
    """Return a size in GiB; a number is one already."""
    return size.to_gibibytes(rounding=SizeRoundingBehavior.NONE) if isinstance(size, Size) else size


def count_mebibytes(size: Size) -> float:
    """Return a size in MiB."""
    return size.to_mebibytes(rounding=SizeRoundingBehavior.NONE)


def is_file(path: str) -> bool:
    """Tell whether a text is the path of a file, whatever else it holds."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def _is_of_gibibytes(size: Size) -> bool:
    """Tell whether a size that is a token is one of GiB; the CDK converts no other."""
    try:
        size.to_gibibytes()
    except RuntimeError:
        return False
    return True
