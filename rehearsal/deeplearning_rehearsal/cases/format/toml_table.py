"""Reads the tables of a case file; what is missing, of another type or asked for by nobody is an error with its key."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from cdk_rehearsal.errors import UnavailableError

T = TypeVar("T")
_WORDS: Mapping[type, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
}


class CaseError(UnavailableError):
    """A case file cannot be carried out; the message names file and key."""


class Table:
    """
    A table that remembers which of its keys were read.

    Args:
        values: The parsed table.
        file: Name of its file, for messages.
        path: Where in the file it is, for messages. Default: at the top.
    """

    def __init__(self, values: Mapping[str, Any], file: str, path: str = "") -> None:
        self._values = values
        self._file = file
        self._path = path
        self._known: set[str] = set()
        self._read: set[str] = set()

    def has(self, key: str) -> bool:
        """Tell whether the file gives a key."""
        self._known.add(key)
        return key in self._values

    def need(self, key: str, kind: type[T]) -> T:
        """
        Return a value that must be there.

        Raises:
            CaseError: It is missing, or of another type.
        """
        if not self.has(key):
            self.refuse(key, f"must be given, it is {_WORDS[kind]}")
        return self._take(key, kind)

    def get(self, key: str, kind: type[T], default: T) -> T:
        """
        Return a value, or the default where the file has none.

        Raises:
            CaseError: It is of another type.
        """
        return self._take(key, kind) if self.has(key) else default

    def find(self, key: str, kind: type[T]) -> T | None:
        """
        Return a value, None where the file has none.

        Raises:
            CaseError: It is of another type.
        """
        return self._take(key, kind) if self.has(key) else None

    def choose(self, key: str, choices: Sequence[str], default: str | None = None) -> str:
        """
        Return one of several words.

        Raises:
            CaseError: It is another one, or missing without a default.
        """
        word = self.need(key, str) if default is None else self.get(key, str, default)
        if word not in choices:
            self.refuse(key, f"must be one of {', '.join(choices)}, got {word!r}")
        return word

    def number_or(self, key: str, word: str, default: float) -> float | None:
        """
        Return a number that is not negative, or None where the file has a word instead.

        Raises:
            CaseError: It is neither.
        """
        if self.has(key) and self._values[key] == word:
            self._read.add(key)
            return None
        number = self.get(key, float, default)
        if number < 0:
            self.refuse(key, f"must be at least 0, or {word!r}, got {number:g}")
        return number

    def items(self, key: str, kind: type[T]) -> tuple[T, ...]:
        """
        Return the entries of a list, none where the file has no such list.

        Raises:
            CaseError: It is no list, or an entry is of another type.
        """
        entries = self.get(key, list, [])
        for entry in entries:
            if not _is(entry, kind):
                self.refuse(key, f"must be a list whose entries are each {_WORDS[kind]}, got {entry!r}")
        return tuple(entries)

    def table(self, key: str) -> "Table":
        """
        Return the table below a key, an empty one where the file has none.

        Raises:
            CaseError: It is no table.
        """
        return Table(self.get(key, dict, {}), self._file, f"{self._path}{key}.")

    def tables(self, key: str) -> "tuple[Table, ...]":
        """
        Return the tables of a list of tables.

        Raises:
            CaseError: It is no list of tables.
        """
        entries: tuple[dict[str, Any], ...] = self.items(key, dict)
        return tuple(Table(entry, self._file, f"{self._path}{key}[{number}].") for number, entry in enumerate(entries))

    def finish(self) -> None:
        """
        Make sure that every key was read.

        Raises:
            CaseError: One was not, so nothing would come of it.
        """
        for key in self._values:
            if key not in self._read:
                known = ", ".join(sorted(self._known))
                self.refuse(key, f"must be left out, nothing here reads it; the keys are {known}")

    def refuse(self, key: str, rule: str) -> NoReturn:
        """
        Say what is wrong with a key.

        Raises:
            CaseError: Always.
        """
        raise CaseError(f"{self._file}: {self._path}{key} {rule}")

    def _take(self, key: str, kind: type[T]) -> T:
        self._read.add(key)
        value = self._values[key]
        if not _is(value, kind):
            self.refuse(key, f"must be {_WORDS[kind]}, got {value!r}")
        # A whole number is a number as well, and the reader wants to count on a float.
        return float(value) if kind is float else value  # type: ignore[return-value]


def _is(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)
