"""What people call of onnxruntime.InferenceSession works on a shipped folder, or says what does."""

from __future__ import annotations

import threading
from typing import Any

import onnxruntime
import pytest
from onnxruntime import OrtValue

import graphfix
from graphfix.errors import FeedError, UsageError
from tests.shipped.test_session import CPU, Pair, alone, clip, same


def test_arguments_as_onnxruntime_takes_them(mean: Pair) -> None:
    source, folder = mean
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    for session in (
        graphfix.Session(folder, options, CPU),
        graphfix.Session(str(folder), sess_options=options, providers=CPU),
        graphfix.Session(folder, options, [("CPUExecutionProvider", {})]),
        graphfix.Session(folder, options, CPU, [{}]),
    ):
        same(session.run(None, clip(7)), alone(source, clip(7)))
        assert session.get_session_options().intra_op_num_threads == 1
        assert session.get_providers() == CPU


def test_providers_may_stand_second_as_they_did(mean: Pair) -> None:
    assert graphfix.Session(mean[1], CPU).get_providers() == CPU
    assert graphfix.Session(mean[1], providers=CPU).get_providers() == CPU


@pytest.mark.parametrize("options", ["CPUExecutionProvider", {}, 3])
def test_options_that_are_none(mean: Pair, options: Any) -> None:
    with pytest.raises(UsageError, match=r"sess_options is .*, and not .* say providers=\[...\]"):
        graphfix.Session(mean[1], options)


def test_options_for_another_number_of_providers(mean: Pair) -> None:
    with pytest.raises(UsageError, match="provider_options has one dict for each of providers"):
        graphfix.Session(mean[1], None, CPU, [{}, {}])


def test_ort_values_are_inputs(mean: Pair) -> None:
    source, folder = mean
    session = graphfix.Session(folder, CPU)
    values = {k: OrtValue.ortvalue_from_numpy(x) for k, x in clip(7).items()}
    same(session.run(None, values), alone(source, clip(7)))
    outputs = session.run_with_ort_values(None, values)
    assert all(isinstance(x, OrtValue) for x in outputs)
    same([x.numpy() for x in outputs], alone(source, clip(7)))


@pytest.mark.parametrize("value", [None, object(), {"a": 1}])
def test_what_is_no_array_is_named(mean: Pair, value: Any) -> None:
    with pytest.raises(FeedError, match=r"the input 'x' is .*, and not an array of numbers"):
        graphfix.Session(mean[1], CPU).run(None, {**clip(7), "x": value})


@pytest.mark.parametrize("feeds", [None, [1], "x"])
def test_feeds_that_are_no_dict(mean: Pair, feeds: Any) -> None:
    with pytest.raises(FeedError, match="inputs are a dict of arrays by name"):
        graphfix.Session(mean[1], CPU).run(None, feeds)


def test_run_async_calls_back(mean: Pair) -> None:
    source, folder = mean
    session, done = graphfix.Session(folder, CPU), threading.Event()
    calls: list[tuple[list[Any], str, str]] = []

    def call_back(outputs: list[Any], user_data: str, problem: str) -> None:
        calls.append((outputs, user_data, problem))
        done.set()

    session.run_async(None, clip(7), call_back, "mine")
    assert done.wait(60)
    done.clear()
    session.run_async(None, clip(99), call_back, "mine")
    assert done.wait(60)
    (outputs, user_data, problem), (nothing, _, told) = calls
    same(outputs, alone(source, clip(7)))
    assert (user_data, problem, nothing) == ("mine", "", [])
    assert "is longer than the longest container" in told


def test_metadata_and_options_are_those_of_a_container(mean: Pair) -> None:
    source, folder = mean
    session = graphfix.Session(folder, CPU)
    original = onnxruntime.InferenceSession(source, providers=CPU)
    assert session.get_modelmeta().graph_name == original.get_modelmeta().graph_name
    assert "graphfix.lengths" in session.get_modelmeta().custom_metadata_map
    assert session.get_provider_options().keys() == {*CPU}
    assert session.get_overridable_initializers() == []


def test_providers_may_be_set_again(mean: Pair) -> None:
    source, folder = mean
    session = graphfix.Session(folder)
    session.set_providers(CPU, [{}])
    assert session.get_providers() == CPU
    same(session.run(None, clip(7)), alone(source, clip(7)))


def test_bindings_say_what_to_call(mean: Pair) -> None:
    session = graphfix.Session(mean[1], CPU)
    for call in (session.io_binding, lambda: session.run_with_iobinding(None)):
        with pytest.raises(UsageError, match=r"call run\(names, feeds\), or stream\(\)"):
            call()


def test_what_else_there_is_of_onnxruntime_says_so(mean: Pair) -> None:
    session = graphfix.Session(mean[1], CPU)
    names = {x for x in dir(onnxruntime.InferenceSession) if not x.startswith("_")}
    missing = [x for x in names if not hasattr(session, x)]
    assert "end_profiling" in missing
    for name in missing:
        with pytest.raises(AttributeError, match="has a session for each container; open"):
            getattr(session, name)
    with pytest.raises(AttributeError, match="'Session' object has no attribute 'rum'"):
        _ = session.rum


def test_it_shows_what_it_is(mean: Pair) -> None:
    session = graphfix.Session(mean[1], CPU)
    assert repr(session) == (
        f"<graphfix.Session of {str(mean[1])!r}: T of 8, 20 on CPUExecutionProvider>"
    )
