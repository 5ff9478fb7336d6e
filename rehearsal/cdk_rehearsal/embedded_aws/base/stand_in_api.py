"""APIs that stand in the place of moto's; an operation that one lacks is an error, and never moto's answer."""

from typing import Any, ClassVar

from moto.core.common_types import TYPE_RESPONSE
from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult, BaseResponse
from moto.core.utils import camelcase_to_underscores


class StandInApi(BaseResponse):
    """API of a service, with a public method for each operation; moto words `error` by the module of its class."""

    service: ClassVar[str]
    error: ClassVar[type[ServiceException]]

    def __init__(self) -> None:
        super().__init__(service_name=self.service)
        self.automated_parameter_parsing = True

    def call_action(self) -> TYPE_RESPONSE:
        """Call the operation of the request."""
        operation = self._get_action()
        if not callable(vars(type(self)).get(camelcase_to_underscores(operation))) or operation.startswith("_"):
            error = self.error("InvalidAction", f"the rehearsal does not implement {self.service}:{operation}")
            return self.serialized(ActionResult(error))
        return super().call_action()

    @classmethod
    def install(cls, paths: dict[str, Any]) -> None:
        """Replace moto's API in its module of paths."""
        paths["{0}/$"] = cls.dispatch
