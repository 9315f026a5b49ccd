"""Without a connector: what the other end-to-end tests take for granted about vLLM and about the harness."""

from collections.abc import Callable

import pytest

from eccache.app.demo.client import Medium, Question
from tests.e2e.servers import Served, ServerPool, ServerSpec


@pytest.fixture
def plain(pool: ServerPool) -> Served:
    """The reference server."""
    return pool.get(ServerSpec())


def test_every_kind_of_prompt_answers_and_twice_the_same(
    plain: Served, coffee: Medium, cat: Medium, video: Medium
) -> None:
    """Image, video, two images: all answer, and at temperature 0 the answer is the same again."""
    questions = [
        Question("What is this?", (coffee,)),
        Question("What happens?", (video,)),
        Question("What differs?", (coffee, cat)),
    ]
    first = plain.answers(questions)
    assert all(first)
    assert first == plain.answers(questions)


def test_an_answer_depends_on_what_is_shown(plain: Served, coffee: Medium, cat: Medium) -> None:
    """Another picture, or another order of pictures, is another answer: equal answers mean something."""
    shown = [(coffee,), (cat,), (coffee, cat), (cat, coffee)]
    answers = plain.answers([Question("What is this?", media) for media in shown])
    assert len(shown) == len(set(answers))


def test_a_run_of_the_encoder_is_seen(plain: Served, new_picture: Callable[[], Medium]) -> None:
    """A picture that the server has not seen costs one run of the encoder, a repeated one none."""
    picture = new_picture()
    before = len(plain.encoder_runs())
    plain.ask(Question("What is this?", (picture,)))
    plain.ask(Question("And what else?", (picture,)))
    assert [((1, 8, 8),)] == [run.grids for run in plain.encoder_runs()[before:]]


def test_a_reply_without_streaming_has_the_same_text(plain: Served, coffee: Medium) -> None:
    """And vLLM's own fields are there."""
    question = Question("What is this?", (coffee,), extra={"return_token_ids": True})
    reply = plain.client.complete(question)
    choice = reply["choices"][0]
    assert plain.ask(question).text == choice["message"]["content"]
    assert question.max_tokens == len(choice["token_ids"])
