"""Words for what is told to people, wherever it is told."""


def plural(count: int, one: str, many: str | None = None) -> str:
    """``1 repair``, ``2 repairs``."""
    return f"{count} {one if count == 1 else many or one + 's'}"
