"""Refusals of EKS, with its codes."""


class EksError(Exception):
    """A refusal, with AWS's code and message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def invalid_parameter(message: str) -> EksError:
    """Return a refusal of a value."""
    return EksError("InvalidParameterException", message)


def invalid_request(message: str) -> EksError:
    """Return a refusal of a request as it is now."""
    return EksError("InvalidRequestException", message)


def in_use(message: str) -> EksError:
    """Return a refusal because of what is there."""
    return EksError("ResourceInUseException", message)


def not_found(message: str) -> EksError:
    """Return a refusal because of what is not there."""
    return EksError("ResourceNotFoundException", message)
