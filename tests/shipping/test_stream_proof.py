"""The proof of a stream, step by step, with answers that stand for those of a session."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from graphfix.errors import FeedError
from graphfix.proof.by_channel import ChannelRule
from graphfix.runtime.run_errors import RunError
from graphfix.shipping import stream_proof
from graphfix.shipping.stream_proof import prove, prove_on_provider
from graphfix.shipping.stream_steps import StepSequence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphfix.shipping.end_to_end import SessionProof

Y = np.arange(1, 9, dtype=np.float32).reshape(2, 4)
FEED = {"x": np.zeros(3, np.float32)}


def steps(*outputs: Any, **changes: Any) -> StepSequence:
    return StepSequence(
        "some", {}, (FEED,) * len(outputs), tuple({"y": x} for x in outputs), **changes
    )


def proof_of(
    *sequences: StepSequence, answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> tuple[SessionProof, list[tuple[str, dict[str, Any], str]]]:
    asked: list[tuple[str, dict[str, Any], str]] = []

    @contextmanager
    def opened(folder: Path) -> Iterator[Any]:
        def ask(*question: Any) -> dict[str, Any]:
            asked.append(question)
            if "error" in answers:
                raise answers["error"]
            return {"refused": np.array(True), **answers}

        yield ask

    monkeypatch.setattr(stream_proof, "open_isolated_session", opened)
    return prove(Path("out"), sequences, ChannelRule()), asked


def test_every_output_of_every_step_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"0/y": Y, "1/y": Y}
    proof, asked = proof_of(steps(Y, Y), answers=answers, monkeypatch=monkeypatch)
    assert proof.ok
    assert proof.of == "step"
    assert [(x.output, x.case) for x in proof.diffs] == [
        ("y", "step 1 of some"),
        ("y", "step 2 of some"),
    ]
    ((order, arrays, doing),) = asked
    assert (order, doing) == ("play", "running some")
    assert {*arrays} == {"0/x", "1/x"}
    proof, _ = proof_of(steps(Y, Y), answers={"0/y": Y, "1/y": -Y}, monkeypatch=monkeypatch)
    assert not proof.ok
    assert [x.ok for x in proof.diffs] == [True, False]


def test_states_and_the_step_that_is_refused_go_along(monkeypatch: pytest.MonkeyPatch) -> None:
    sequence = StepSequence("some", {"past": Y}, (FEED,), ({"y": Y},), 0, {"x": Y})
    _, asked = proof_of(sequence, answers={"0/y": Y}, monkeypatch=monkeypatch)
    assert {*asked[0][1]} == {"states/past", "beyond/x", "0/x"}


def test_what_padding_gives_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Y.copy()
    other[:, :2] = 99
    answers = {"0/y": other, "1/y": Y}
    padded, _ = proof_of(steps(Y, Y, padded_entries=2), answers=answers, monkeypatch=monkeypatch)
    assert padded.ok
    for sequence, wrong in (
        (steps(Y, Y), answers),
        (steps(Y, Y, padded_entries=1), answers),
        (steps(Y, Y, padded_entries=2), {"0/y": Y, "1/y": other}),  # in the first step alone
    ):
        assert not proof_of(sequence, answers=wrong, monkeypatch=monkeypatch)[0].ok
    # An output of rank 1 has no entries to leave out.
    row = Y[0]
    flat, _ = proof_of(
        steps(row, padded_entries=2), answers={"0/y": other[0]}, monkeypatch=monkeypatch
    )
    assert not flat.ok


def test_nothing_compared_is_nothing_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    proof, _ = proof_of(answers={}, monkeypatch=monkeypatch)
    assert not proof.ok


def test_a_step_behind_full_caches_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"0/y": Y, "refused": np.array(False)}
    proof, asked = proof_of(steps(Y), steps(Y), answers=answers, monkeypatch=monkeypatch)
    assert not proof.ok
    assert proof.reason.startswith("a step behind full caches is run")
    assert len(asked) == 1
    assert len(proof.diffs) == 1


@pytest.mark.parametrize("error", [RunError("no"), FeedError("no")])
def test_a_sequence_that_does_not_run_is_told(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof, _ = proof_of(steps(Y), answers={"error": error}, monkeypatch=monkeypatch)
    assert (proof.ok, proof.reason, proof.of) == (False, "some: no", "step")


@pytest.mark.parametrize(("array", "reason"), [(Y, ""), (None, "on DirectML, some: no")])
def test_another_provider_says_where_it_fails(
    array: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []

    @contextmanager
    def runner(folder: Path, open_model: Any) -> Iterator[Any]:
        yield "runner"

    def stream(runner: Any, states: Any) -> Any:
        begun.append(states)

        def play(feeds: Any) -> dict[str, Any]:
            if array is None:
                raise RunError("no")
            return {"0/y": array}

        return SimpleNamespace(play=play)

    monkeypatch.setattr(stream_proof, "RemoteRunner", runner)
    monkeypatch.setattr(stream_proof, "Stream", stream)
    sequence = StepSequence("some", {"past": Y}, (FEED,), ({"y": Y},))
    proof = prove_on_provider(Path("out"), [sequence], ChannelRule(), "dml")
    assert (proof.ok, proof.reason) == (array is not None, reason)
    assert begun == [sequence.states]
    prove_on_provider(Path("out"), [steps(Y)], ChannelRule(), "dml")
    assert begun[-1] is None
