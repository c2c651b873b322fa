"""The containers of a folder in sessions of another process: arrays go there and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphfix.runtime.port import Array, Feeds
from graphfix.runtime.scratch import Closing
from graphfix.shipped.manifest import Container, Manifest


class RemoteRuns(Closing):
    """What a :class:`graphfix.shipped.stream.Stream` runs containers by, on any provider.

    Args:
        folder: The folder.
        opened: Makes a session of a file.
    """

    def __init__(self, folder: Path, opened: Callable[[Path], Any]) -> None:
        self.folder, self.manifest = folder, Manifest.read(folder)
        self.made: dict[str, Any] = {}
        self._opened = opened

    def hold(self, array: Array) -> OnHost:
        """An array, to be an input of several runs."""
        return OnHost(array)

    def step(
        self,
        container: Container,
        fed: Mapping[str, Any],
        wanted: Sequence[str],
        kept: Sequence[str],
        run_options: object = None,
    ) -> tuple[list[Array], list[Any]]:
        """The outputs of a run that are wanted, and those that are fed back."""
        if container.file not in self.made:
            self.made[container.file] = self._opened(self.folder / container.file)
        made = self.ran(container, {k: x.numpy() for k, x in fed.items()})
        return [made[x] for x in wanted], [OnHost(made[x]) for x in kept]

    def ran(self, container: Container, feeds: Feeds) -> Feeds:
        """All outputs of a container."""
        found: Feeds = self.made[container.file].run(feeds)
        return found

    def close(self) -> None:
        """Let go of all sessions."""
        for session in self.made.values():
            session.close()


class OnHost:
    """An array on the host."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def numpy(self) -> Array:
        """The array."""
        return self._array
