"""Rules of ``check``: hazards on an execution provider, by id. One module, one family.

A new rule is a class in one of these modules; it is found there, and the tests run its manual.
"""

import functools
import importlib
import pkgutil
from collections.abc import Mapping

from graphfix.rules.rule import Hazard, Rule

__all__ = ["Hazard", "Rule", "rules"]


@functools.cache
def rules() -> Mapping[str, type[Rule]]:
    """Return every rule by its id, in the order of the modules."""
    rule_by_name: dict[str, type[Rule]] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for cls in vars(module).values():
            own = isinstance(cls, type) and cls.__module__ == module.__name__
            if own and issubclass(cls, Rule) and cls is not Rule:
                rule_by_name[cls.name] = cls
    return rule_by_name
