"""Cron expressions of EventBridge (its user guide, "Cron expressions"), which are in UTC."""

import re
from datetime import datetime

from cdk_rehearsal.errors import AssemblyError

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_NAMES = {name: number for names in (_MONTHS, _DAYS) for number, name in enumerate(names, 1)}
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (1, 7), (1970, 2199))
"""Minutes, hours, day of the month, month, day of the week from Sunday, year."""
_PART = re.compile(r"(?:\*|([0-9]+|[A-Z]{3})(?:-([0-9]+|[A-Z]{3}))?)(?:/([0-9]+))?")


class Cron:
    """The minutes at which a rule with a cron expression comes due; AssemblyError for what is not one, or not known."""

    def __init__(self, expression: str) -> None:
        found = re.fullmatch(r"cron\((.+)\)", expression)
        fields = found[1].split() if found else []
        if len(fields) != len(_BOUNDS) or (fields[2] == "?") == (fields[4] == "?"):
            raise _refuse(expression)
        self._allowed = []
        for field, (least, most) in zip(fields, _BOUNDS, strict=True):
            parts = ("*",) if field == "?" else field.split(",")
            self._allowed.append({value for part in parts for value in _list_values(expression, part, least, most)})

    def is_due(self, moment: datetime) -> bool:
        """Return whether the rule comes due in the minute of a time in UTC."""
        day = moment.isoweekday() % 7 + 1
        values = (moment.minute, moment.hour, moment.day, moment.month, day, moment.year)
        return all(value in allowed for value, allowed in zip(values, self._allowed, strict=True))


def _list_values(expression: str, part: str, least: int, most: int) -> range:
    found = _PART.fullmatch(part)
    if found is None:
        raise _refuse(expression)
    first, last, step = found.groups()
    begin = least if first is None else _read(expression, first)
    end = _read(expression, last) if last else most if first is None or step else begin
    if not least <= begin <= end <= most or step == "0":
        raise _refuse(expression)
    return range(begin, end + 1, int(step or 1))


def _read(expression: str, word: str) -> int:
    if word.isdigit():
        return int(word)
    if word not in _NAMES:
        raise _refuse(expression)
    return _NAMES[word]


def _refuse(expression: str) -> AssemblyError:
    return AssemblyError(f"ScheduleExpression must be a rate or a cron expression without L, W, #, got {expression!r}")
