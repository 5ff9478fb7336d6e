"""Data of tests as JSON with one record a line: a change shows as one line."""

import json


def write_records(value, depth):
    """Return JSON with one line for each entry of the outer `depth` levels of containers."""
    if not depth or not value or not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[\n" + ",\n".join(write_records(entry, depth - 1) for entry in value) + "\n]"
    entries = (f"{json.dumps(key)}: {write_records(entry, depth - 1)}" for key, entry in value.items())
    return "{\n" + ",\n".join(entries) + "\n}"
