"""Options that several verbs share: sizes, containers, files, names of outputs, tolerances."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from graphfix.cli import _options, _terminal
from graphfix.proof.compare import HALF_GATE, Tolerance
from graphfix.wording import ALIASES


def run(command: click.Command, *arguments: str) -> Any:
    """Return what a command returns; a usage error is raised."""
    return command.main(list(arguments), standalone_mode=False)


@click.command()
@_options.dims_option("T=7", "Sizes.")
def sized(dims: object) -> object:
    return dims


@pytest.mark.parametrize("option", ["--dims", "--dim"])
def test_sizes_by_the_name_of_a_dim(option: str) -> None:
    assert run(sized) is None
    assert run(sized, option, "T=7,40", option, "B=1", option, "T=3") == {"T": [7, 40, 3], "B": [1]}
    assert run(sized, option, ' "a=b" =1') == {"a=b": [1]}
    assert run(sized, option, f"T={1 << 40}") == {"T": [1 << 40]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("T", "--dims T: write NAME=SIZE such as T=7."),
        ("=7", "--dims =7: write NAME=SIZE such as T=7."),
        (" =7", "write NAME=SIZE"),
        ("T=", "--dims T=: '' are not whole numbers."),
        ("T=1,x", "'1,x' are not whole numbers."),
        ("T=1.5", "'1.5' are not whole numbers."),
        ("T=0", "--dims T=0: a size is at least 1."),
        ("T=3,-1", "a size is at least 1."),
        (f"T={(1 << 40) + 1}", "a size is at most 1,099,511,627,776."),
    ],
)
def test_sizes_that_are_none(text: str, message: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        run(sized, "--dims", text)
    assert message in caught.value.message


@click.command()
@_options.lengths
def contained(**options: object) -> object:
    return options


def test_containers() -> None:
    assert run(contained) == {"dims": None, "container": None, "axis": "", "original": None}
    given = run(contained, "--container", "160,240", "--container", "1", "--axis", "x.1")
    assert (given["container"], given["axis"]) == ([160, 240, 1], "x.1")
    with pytest.raises(click.UsageError, match="--container x: not whole numbers"):
        run(contained, "--container", "x")
    with pytest.raises(click.UsageError, match="--container 0: a container is at least 1"):
        run(contained, "--container", "0")


@click.command()
@_options.models
def several(models: tuple[str, ...]) -> tuple[str, ...]:
    return models


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.onnx", "b.onnx", "c.txt", "[d].onnx"):
        Path(name).write_text(name)
    Path("deep", "er").mkdir(parents=True)
    Path("deep", "er", "e.onnx").write_text("e")


@pytest.mark.usefixtures("files")
def test_patterns_of_files() -> None:
    assert run(several, "a.onnx", "gone.onnx") == ("a.onnx", "gone.onnx")
    assert run(several, "?.onnx") == ("a.onnx", "b.onnx")
    assert run(several, "b.onnx", "?.onnx", "a.onnx") == ("b.onnx", "a.onnx")
    # A file of that very name is meant.
    assert run(several, "[d].onnx") == ("[d].onnx",)
    assert run(several, "deep/**/*.onnx") == (os.path.join("deep", "er", "e.onnx"),)  # noqa: PTH118
    with pytest.raises(click.UsageError, match=r"z\*.onnx: matches no file"):
        run(several, "z*.onnx")
    with pytest.raises(click.UsageError, match="Missing parameter: models"):
        run(several)


@pytest.fixture
def standard_input(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = dict(ALIASES)
    stream = io.TextIOWrapper(io.BytesIO(b"a model"))
    monkeypatch.setattr("sys.stdin", stream)
    yield
    ALIASES.clear()
    ALIASES.update(before)


@click.command()
@_options.model
def single(model: str) -> tuple[str, str, str]:
    path = Path(model)
    remembered = click.get_current_context().meta[_options.MODEL]
    return model, path.read_text() if path.exists() else "", remembered


@pytest.mark.usefixtures("standard_input")
def test_a_model_from_the_standard_input() -> None:
    path, content, remembered = run(single, "-")
    assert (content, remembered) == ("a model", path)
    assert ALIASES[path] == "stdin"
    assert Path(path).name == "stdin.onnx"
    assert not Path(path).exists()  # it goes with the command
    assert run(single, "m.onnx") == ("m.onnx", "", "m.onnx")


def test_nothing_is_read_for_a_shell_that_completes() -> None:
    context = click.Context(single, resilient_parsing=True)
    assert _options.path_or_stdin(context, single.params[0], "-") == "-"


@pytest.mark.usefixtures("standard_input")
def test_a_model_to_the_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    with click.Context(single) as context:
        path = _options.stdout_file(context)
        assert Path(path).name == "stdout.onnx"
        assert ALIASES[path] == "stdout"
        monkeypatch.setattr(_terminal, "data_stream", Terminal)
        with pytest.raises(click.UsageError, match="stdout is a terminal; pipe it on"):
            _options.stdout_file(context)


@click.command()
@_options.plugin
@click.option("-o", "output")
def named(output: str | None) -> tuple[str, ...]:
    _options.require_name(output)
    return _options.plugin_files()


@pytest.mark.usefixtures("files")
def test_the_name_of_an_output() -> None:
    assert run(named) == ()
    assert run(named, "-o", "new.onnx", "--plugin", "c.txt") == ("c.txt",)
    assert run(named, "-o", "a.onnx", "--plugin", "c.txt", "--plugin", "gone.py") == (
        "c.txt",
        "gone.py",
    )
    for output, message in (
        ("", "-o: names no file."),
        (" ", "-o: names no file."),
        ("-", "only graphfix run writes to stdout"),
        ("deep/", "-o deep/: names a folder; name a file in it."),
        ("c.txt", "-o c.txt: is read for this work; name another file."),
        ("./c.txt", "is read for this work"),
    ):
        with pytest.raises(click.UsageError) as caught:
            run(named, "-o", output, "--plugin", "gone.py", "--plugin", "c.txt")
        assert message in caught.value.message


def test_no_plugin_is_loaded_where_none_is_given() -> None:
    with click.Context(named):
        assert _options.plugin_files() == ()
        _options.load_plugins()


@click.command()
@_options.quiet
def loud() -> str:
    print("said")
    click.echo("data", file=_terminal.data_stream())
    return "done"


def test_quiet_prints_data_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(loud) == "done"
    assert capsys.readouterr().out == "said\ndata\n"
    assert run(loud, "-q") == "done"
    assert capsys.readouterr().out == "data\n"
    assert run(loud) == "done"
    assert capsys.readouterr().out == "said\ndata\n"


@click.command()
@_options.tolerance_option("--atol", text="A.")
@_options.tolerance_option("--cosine", text="C.")
@_options.rtol
@click.option("--narrow", is_flag=True)
def tolerant(
    atol: float | None, rtol: float | None, cosine: float | None, narrow: bool
) -> Tolerance | None:
    return _options.build_tolerance(atol, rtol, cosine, wide=not narrow)


def test_tolerances() -> None:
    usual = Tolerance()
    assert run(tolerant) is None
    exact = run(tolerant, "--atol", "0")
    assert (exact.max_abs, exact.cosine) == (0, usual.cosine)
    wide = run(tolerant, "--atol", str(10 * usual.max_abs))
    assert wide.max_abs == 10 * usual.max_abs
    assert 1 - wide.cosine == pytest.approx(10 * (1 - usual.cosine), rel=1e-6)
    narrow = run(tolerant, "--atol", str(10 * usual.max_abs), "--narrow")
    assert narrow.cosine == usual.cosine
    half = run(tolerant, "--rtol", "0.02")
    assert half.max_abs == 0.02
    assert 1 - half.cosine == pytest.approx((1 - HALF_GATE.cosine) * 0.02 / HALF_GATE.max_abs)
    assert run(tolerant, "--cosine", "1") == Tolerance(cosine=1.0)
    assert run(tolerant, "--cosine", "-1", "--atol", "0.5").cosine == -1
    assert run(tolerant, "--cosine", "-1", "--atol", "0.5").max_abs == 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--atol", "-0.1"], "--atol -0.1: a difference is at least 0."),
        (["--atol", "nan"], "--atol nan: a difference is at least 0."),
        (["--cosine", "1.1"], "--cosine 1.1: a cosine is between -1 and 1."),
        (["--cosine", "-1.1"], "a cosine is between -1 and 1."),
        (["--rtol", "0"], "--rtol 0: is between 0 and 1, and without --atol."),
        (["--rtol", "1"], "is between 0 and 1"),
        (["--rtol", "0.1", "--atol", "0.1"], "and without --atol"),
    ],
)
def test_tolerances_that_are_none(arguments: list[str], message: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        run(tolerant, *arguments)
    assert message in caught.value.message


def test_a_difference_of_the_configuration_gives_way_to_a_share() -> None:
    found = tolerant.main(["--rtol", "0.1"], standalone_mode=False, default_map={"atol": 0.5})
    assert found.max_abs == 0.1


def test_options_are_spelled_as_help_lists_them() -> None:
    names = [param.opts for param in contained.params]
    assert names == [["--dims", "--dim"], ["--container"], ["--axis"], ["--original"]]
    flags = click.command()(_options.verbose(_options.json_flag(lambda **_: None)))
    assert [(x.name, getattr(x, "is_flag", False)) for x in flags.params] == [
        ("verbose", True),
        ("as_json", True),
    ]
