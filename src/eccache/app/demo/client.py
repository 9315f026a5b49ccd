"""Asks a vLLM server about pictures and videos over the OpenAI API and times the first token."""

from __future__ import annotations

import base64
import mimetypes
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from openai import OpenAI


@attrs.frozen
class Medium:
    """One image or video of a prompt.

    Attributes:
        content_type: MIME type, such as `image/jpeg` or `video/mp4`.
        data: The file's bytes.
        uuid: Name that the client gives the item, vLLM's extension; usually none.
    """

    content_type: str
    data: bytes = attrs.field(repr=False)
    uuid: str | None = None

    @classmethod
    def from_file(cls, path: Path) -> Medium:
        """Read a file; its suffix says what it is."""
        content_type, _ = mimetypes.guess_type(path.name)
        if content_type is None:
            raise ValueError(
                f"{path.name}: no known media suffix; name the file .jpg, .png or .mp4"
            )
        return cls(content_type, path.read_bytes())

    def part(self) -> dict[str, Any]:
        """The part of an OpenAI chat message that carries the medium as a data URL."""
        kind = f"{self.content_type.partition('/')[0]}_url"
        url = f"data:{self.content_type};base64,{base64.b64encode(self.data).decode()}"
        part: dict[str, Any] = {"type": kind, kind: {"url": url}}
        if self.uuid is not None:
            part["uuid"] = self.uuid
        return part


@attrs.frozen
class Question:
    """One user turn.

    Attributes:
        text: What is asked.
        media: Images and videos, in order.
        text_first: Whether the text stands before the media.
        max_tokens: Length of the answer.
        extra: Further fields of the request body, such as `cache_salt`.
    """

    text: str
    media: tuple[Medium, ...] = ()
    text_first: bool = False
    max_tokens: int = attrs.field(default=16, validator=attrs.validators.ge(1))
    extra: Mapping[str, Any] = attrs.field(factory=dict)

    def message(self) -> dict[str, Any]:
        """The OpenAI chat message."""
        text = [{"type": "text", "text": self.text}]
        media = [medium.part() for medium in self.media]
        return {"role": "user", "content": text + media if self.text_first else media + text}


@attrs.frozen
class Answer:
    """What came back.

    Attributes:
        text: The whole answer.
        ttft_seconds: From sending the request to the first piece of text.
        seconds: From sending the request to the end.
    """

    text: str
    ttft_seconds: float
    seconds: float


class ChatClient:
    """A client of one server; safe to share among threads."""

    def __init__(self, url: str, model: str, *, timeout_seconds: float = 300.0) -> None:
        """Connect lazily.

        Args:
            url: Address of the server, without a path.
            model: Name under which the server serves the model.
            timeout_seconds: How long one request may take.
        """
        from openai import OpenAI

        self._model = model
        self._openai: OpenAI = OpenAI(
            base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=timeout_seconds
        )

    def ask(self, question: Question) -> Answer:
        """Ask at temperature 0, streaming, and wait for the end."""
        begin = time.perf_counter()
        first: float | None = None
        pieces: list[str] = []
        for piece in self.stream(question):
            first = first or time.perf_counter()
            pieces.append(piece)
        end = time.perf_counter()
        return Answer(
            text="".join(pieces), ttft_seconds=(first or end) - begin, seconds=end - begin
        )

    def complete(self, question: Question) -> dict[str, Any]:
        """Ask at temperature 0 without streaming, and return the whole body of the reply.

        It has fields of vLLM's own, such as a producer's `ec_transfer_params`.
        """
        reply: Any = self._openai.chat.completions.create(
            **self._request(question), extra_body=dict(question.extra)
        )
        body: dict[str, Any] = reply.model_dump()
        return body

    def stream(self, question: Question) -> Iterator[str]:
        """Ask at temperature 0 and yield pieces of text; closing the iterator aborts the request."""
        chunks: Any = self._openai.chat.completions.create(
            **self._request(question), stream=True, extra_body=dict(question.extra)
        )
        with chunks:
            for chunk in chunks:
                if chunk.choices and (piece := chunk.choices[0].delta.content):
                    yield piece

    def _request(self, question: Question) -> dict[str, Any]:
        return {
            "model": self._model,
            "messages": [question.message()],
            "temperature": 0,
            "max_tokens": question.max_tokens,
        }
