"""Runs the containers of a folder in sessions of another process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphfix.runtime.port import Array, Feeds
from graphfix.runtime.scratch import Closable
from graphfix.shipped.folder_files import open_folder
from graphfix.shipped.manifest import Container
from graphfix.shipped.references import require_own_references


class RemoteRunner(Closable):
    """Runs containers for a :class:`graphfix.shipped.stream.Stream`, on any provider.

    Args:
        folder: The folder.
        open_session: Opens a session of a file.
    """

    def __init__(self, folder: Path, open_session: Callable[[Path], Any]) -> None:
        self.folder, self.manifest = folder, open_folder(folder)
        self.sessions: dict[str, Any] = {}
        self._open_session = open_session

    def hold(self, array: Array) -> HostArray:
        """Return an array as an input of several runs."""
        return HostArray(array)

    def step(
        self,
        container: Container,
        fed: Mapping[str, Any],
        output_names: Sequence[str],
        state_names: Sequence[str],
        run_options: object = None,
    ) -> tuple[list[Array], list[Any]]:
        """Run a container; return the requested outputs, and those that are fed back."""
        self.open_container(container)
        outputs = self.run_container(container, {k: x.numpy() for k, x in fed.items()})
        return [outputs[x] for x in output_names], [HostArray(outputs[x]) for x in state_names]

    def open_container(self, container: Container) -> None:
        """Open a container that has not been opened yet."""
        if container.file not in self.sessions:
            require_own_references(self.folder, container.file, self.manifest)
            self.sessions[container.file] = self._open_session(self.folder / container.file)

    def run_container(self, container: Container, feeds: Feeds) -> Feeds:
        """Run a container and return all its outputs."""
        outputs: Feeds = self.sessions[container.file].run(feeds)
        return outputs

    def close(self) -> None:
        """Close all sessions."""
        for session in self.sessions.values():
            session.close()


class HostArray:
    """An array on the host."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def numpy(self) -> Array:
        """Return the array."""
        return self._array
