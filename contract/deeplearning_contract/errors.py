"""The one base error of the contract."""


class ContractError(ValueError):
    """A document or message does not have the shape that the contract gives it."""
