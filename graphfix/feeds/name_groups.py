"""Names that stand for one thing, of which one represents the others."""


class NameGroups:
    """Groups of names; a name that was joined to no other is a group of its own."""

    def __init__(self) -> None:
        self._representatives: dict[str, str] = {}

    def __bool__(self) -> bool:
        """Return whether any two names are one."""
        return bool(self._representatives)

    def of(self, name: str) -> str:
        """Return the name that represents the group of ``name``."""
        while name in self._representatives:
            name = self._representatives[name]
        return name

    def join(self, first: str, second: str) -> None:
        """Make two groups one, which the representative of the first one's represents."""
        first, second = self.of(first), self.of(second)
        if first != second:
            self._representatives[second] = first
