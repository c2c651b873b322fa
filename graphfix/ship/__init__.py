"""From an export to a folder that runs fast: containers, the manifest, the session that pads.

``graphfix.ship(model, "shipped", {"T": [500, 3000]})`` does it: this module can be called, and is
the package of its parts.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphfix.ship.shipped import Shipped


class _Callable(ModuleType):
    def __call__(self, *given: Any, **options: Any) -> Shipped:  # noqa: ANN401  (those of ship_file)
        from graphfix.ship.build import ship_file  # a session needs none of it

        return ship_file(*given, **options)


sys.modules[__name__].__class__ = _Callable
