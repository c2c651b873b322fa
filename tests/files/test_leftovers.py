"""What a dead write left goes; what lives, is wanted, or is not ours stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphfix.files import leftovers
from graphfix.files.file_lock import acquire_lock, release_lock
from graphfix.files.leftovers import (
    data_files,
    lock_path,
    mentioned_tokens,
    part_path,
    sweep_leftovers,
)

TOKEN, OTHER = "0123456789abcdef", "fedcba9876543210"


def listing(folder: Path) -> list[str]:
    return sorted(x.name for x in folder.iterdir())


def fill(folder: Path, *names: str) -> None:
    for name in names:
        if name.endswith(("/", ".new", ".old")):
            (folder / name).mkdir()
            (folder / name / "inside").write_bytes(b"x")
        else:
            (folder / name).write_bytes(b"x")


@pytest.mark.parametrize(
    ("names", "remaining"),
    [
        ([f".o.onnx.{TOKEN}.part"], []),
        ([f".o.{TOKEN}.new"], []),
        ([f".o.onnx.{TOKEN}.part", f"o.onnx.{TOKEN}.data"], []),
        ([f".graphfix.{TOKEN}.lock"], []),
        # Nothing tells that these weights are of a write that died.
        ([f"o.onnx.{TOKEN}.data"], [f"o.onnx.{TOKEN}.data"]),
        # A folder that was put aside: gone if something came in its place, else back again.
        ([f".o.{TOKEN}.old", "o"], ["o"]),
        ([f".o.{TOKEN}.old"], ["o"]),
        # Not ours.
        ([".o.part", f".o.{TOKEN[1:]}.part", f".o.{TOKEN}.tmp", f"o.{TOKEN}.part"],
         [".o.part", f".o.{TOKEN[1:]}.part", f".o.{TOKEN}.tmp", f"o.{TOKEN}.part"]),
        ([f".o.{TOKEN}.part", f"o.{OTHER}.data"], [f"o.{OTHER}.data"]),
    ],
)  # fmt: skip
def test_what_goes(tmp_path: Path, names: list[str], remaining: list[str]) -> None:
    fill(tmp_path, *names)
    sweep_leftovers(tmp_path)
    assert listing(tmp_path) == sorted(remaining)


def test_a_folder_put_aside_comes_back_whole(tmp_path: Path) -> None:
    fill(tmp_path, f".o.{TOKEN}.old")
    sweep_leftovers(tmp_path)
    assert (tmp_path / "o" / "inside").read_bytes() == b"x"


def test_weights_of_a_token_that_is_named_go_without_a_lock_file(tmp_path: Path) -> None:
    fill(tmp_path, f"o.{TOKEN}.data", f"o.{OTHER}.data")
    sweep_leftovers(tmp_path, [TOKEN])
    assert listing(tmp_path) == [f"o.{OTHER}.data"]


def test_weights_that_a_file_refers_to_stay_with_their_lock(tmp_path: Path) -> None:
    """The lock file stays, so that they go once the model is gone."""
    fill(tmp_path, f"o.onnx.{TOKEN}.data", f".graphfix.{TOKEN}.lock")
    model = tmp_path / "renamed.bin"
    model.write_bytes(b"ir" + f"o.onnx.{TOKEN}.data".encode() + b"...")
    sweep_leftovers(tmp_path)
    assert f"o.onnx.{TOKEN}.data" in listing(tmp_path)
    model.unlink()
    sweep_leftovers(tmp_path, [TOKEN])
    assert listing(tmp_path) == []


def test_nothing_of_a_living_write_goes(tmp_path: Path) -> None:
    names = [f".o.{TOKEN}.part", f"o.{TOKEN}.data"]
    fill(tmp_path, *names)
    lock = acquire_lock(lock_path(tmp_path, TOKEN))
    assert lock is not None
    try:
        sweep_leftovers(tmp_path)
        assert set(names) < set(listing(tmp_path))
    finally:
        release_lock(lock, remove=True)
    sweep_leftovers(tmp_path)
    assert listing(tmp_path) == []


def test_a_folder_that_is_not_there_is_swept(tmp_path: Path) -> None:
    sweep_leftovers(tmp_path / "gone")


def test_a_draft_has_a_short_hidden_name(tmp_path: Path) -> None:
    assert part_path(tmp_path / "o.onnx", TOKEN).name == f".o.onnx.{TOKEN}.part"
    assert part_path(tmp_path / "o", TOKEN, "new") == tmp_path / f".o.{TOKEN}.new"
    assert lock_path(tmp_path, TOKEN) == tmp_path / f".graphfix.{TOKEN}.lock"
    # 200 bytes of the name, and no half of a character.
    assert part_path(tmp_path / ("a" * 300), TOKEN).name == f".{'a' * 200}.{TOKEN}.part"
    assert part_path(tmp_path / ("a" + "ä" * 200), TOKEN).name == f".a{'ä' * 99}.{TOKEN}.part"


def test_files_of_weights(tmp_path: Path) -> None:
    fill(tmp_path, f"o.{TOKEN}.data", f".{OTHER}.data", f"o.{TOKEN}.data.bak", "o.data")
    assert data_files(tmp_path) == [(TOKEN, tmp_path / f"o.{TOKEN}.data")]


@pytest.mark.parametrize("start", range(20))
def test_a_mention_across_two_blocks_is_seen(
    tmp_path: Path, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "_BUFFER", 17)
    (tmp_path / "a").write_bytes(b"." * start + TOKEN.encode() + b"." * 40)
    assert mentioned_tokens([tmp_path / "a"], [TOKEN, OTHER]) == {TOKEN}


def test_what_cannot_be_a_model_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "_MODEL_LIMIT", 20)
    (tmp_path / "short").write_text(f"{TOKEN}...")
    (tmp_path / "long").write_text(f"{OTHER}....")
    (tmp_path / "folder").mkdir()
    assert mentioned_tokens(tmp_path.iterdir(), [TOKEN, OTHER]) == {TOKEN}
