"""Refusals of the API server, with the words and the status of the real one."""

from typing import Any

from cdk_rehearsal.kubernetes.stand_in.base.resources import Resource

_REASONS = {
    "Required value": "FieldValueRequired",
    "Duplicate value": "FieldValueDuplicate",
    "Not found": "FieldValueNotFound",
    "Unsupported value": "FieldValueNotSupported",
    "Forbidden": "FieldValueForbidden",
    "Too long": "FieldValueTooLong",
    "Too many": "FieldValueTooMany",
}
"""First words of a rule -> reason of its cause."""


class ApiError(Exception):
    """
    Refusal of a request.

    Args:
        code: HTTP status.
        reason: Machine-readable reason.
        message: Words for people.
        details: Object that it is about.
    """

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details or {}

    def to_document(self) -> dict[str, Any]:
        """Return the `Status` of the answer."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            **({"details": self.details} if self.details else {}),
            "code": self.code,
        }


def _describe(resource: Resource, name: str) -> dict[str, Any]:
    group = {"group": resource.group} if resource.group else {}
    return {"name": name, **group, "kind": resource.plural}


def refuse_unknown_sender() -> ApiError:
    """Return the refusal of a token that no user has."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def report_missing(resource: Resource, name: str) -> ApiError:
    """Return the refusal of a request for an object that does not exist."""
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', _describe(resource, name))


def report_unknown_path() -> ApiError:
    """Return the refusal of a request for what the server does not have."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def report_existing(resource: Resource, name: str) -> ApiError:
    """Return the refusal of a second object of one name."""
    return ApiError(409, "AlreadyExists", f'{resource.qualified} "{name}" already exists', _describe(resource, name))


def report_stale(resource: Resource, name: str) -> ApiError:
    """Return the refusal of an update from an older version."""
    return ApiError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {resource.qualified} "{name}": the object has been modified; please apply '
        "your changes to the latest version and try again",
        _describe(resource, name),
    )


def report_invalid(resource: Resource, name: str, *findings: str) -> ApiError:
    """Return the refusal of an object whose values contradict the rules of its kind."""
    listing = findings[0] if len(findings) == 1 else f"[{', '.join(findings)}]"
    group = f".{resource.group}" if resource.group else ""
    message = f'{resource.kind}{group} "{name}" is invalid: {listing}'
    parts = (finding.partition(": ") for finding in findings)
    causes = [{"reason": _find_reason(rule), "message": rule, "field": field} for field, _, rule in parts]
    about = {**_describe(resource, name), "kind": resource.kind}
    return ApiError(422, "Invalid", message, {**about, "causes": causes})


def _find_reason(rule: str) -> str:
    """Return the reason of a cause from its words."""
    return next((reason for start, reason in _REASONS.items() if rule.startswith(start)), "FieldValueInvalid")


def report_unsupported(path: str) -> ApiError:
    """Return the refusal of what the stand-in does not do; a real server would."""
    return ApiError(
        501,
        "NotImplemented",
        f"the stand-in of Kubernetes does not implement {path}; rehearse with release binaries "
        "(KUBERNETES_BINARIES=<folder>)",
    )
