"""What is to be measured: models, media and connectors as values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import attrs

from eccache.app.demo.client import Medium, Question
from eccache.app.demo.report import transfer_config

WARM_UP_ID: Final = "warm-up"
"""Id under which the same media are sent first: the same work, and another id, so nothing is reused."""
VIDEO: Final = "video/"
STORE: Final = "{store}"


@attrs.frozen
class Connector:
    """A connector, or none.

    Attributes:
        name: In tables.
        transfer: Value of vLLM's `--ec-transfer-config`, with `{store}` where its folder goes; None: no
            connector.
    """

    name: str
    transfer: Mapping[str, Any] | None

    @classmethod
    def named(cls, name: str) -> Self:
        """Return one of `CONNECTORS`, or `NAME=JSON`, the value of `--ec-transfer-config`.

        Raises:
            ValueError: neither.
        """
        if name in CONNECTORS:
            return cls(name, CONNECTORS[name])
        label, equals, text = name.partition("=")
        if not equals:
            msg = f"{name!r} is none of {', '.join(CONNECTORS)}, and no NAME=JSON"
            raise ValueError(msg)
        transfer = json.loads(text)
        if not isinstance(transfer, dict):
            msg = f"{label}: the value of --ec-transfer-config is a JSON object"
            raise ValueError(msg)  # noqa: TRY004 - of the text, not of an argument's type
        return cls(label, transfer)

    def arguments(self, store: Path) -> tuple[str, ...]:
        """Return vLLM's arguments for this connector with its files in *store*."""
        if self.transfer is None:
            return ()
        text = json.dumps(self.transfer).replace(STORE, json.dumps(str(store))[1:-1])
        return ("--ec-transfer-config", text)


CONNECTORS: Final[dict[str, dict[str, Any] | None]] = {
    "eccache": transfer_config(STORE),
    "ECExampleConnector": {
        "ec_connector": "ECExampleConnector",
        "ec_role": "ec_both",
        "ec_connector_extra_config": {"shared_storage_path": STORE},
    },
    "none": None,
}


@attrs.frozen(kw_only=True)
class Case:
    """One question that is timed.

    Attributes:
        label: In tables.
        question: What is asked.
    """

    label: str
    question: Question

    def warm_up(self) -> Question:
        """Return the same question under another id of its medium."""
        media = tuple(attrs.evolve(medium, uuid=WARM_UP_ID) for medium in self.question.media)
        return attrs.evolve(self.question, media=media)


@attrs.frozen(kw_only=True)
class Series:
    """Questions for servers with the same arguments.

    Attributes:
        cases: What is asked.
        arguments: Of the server.
    """

    cases: tuple[Case, ...]
    arguments: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Plan:
    """Everything that is measured.

    Attributes:
        model: Name or folder.
        series: One server's life, cold and again warm, for each, each connector and repetition.
        connectors: Side by side.
        repetitions: How often each.
        arguments: Of every server.
        folder: For logs and stores; exists.
        start_timeout_seconds: How long a server may take to start.
    """

    model: str
    series: tuple[Series, ...]
    connectors: tuple[Connector, ...]
    repetitions: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    arguments: tuple[str, ...] = ()
    folder: Path
    start_timeout_seconds: float = 1800.0

    @property
    def starts(self) -> int:
        """How many times a server is started."""
        lives = sum(1 if connector.transfer is None else 2 for connector in self.connectors)
        return lives * len(self.series) * self.repetitions


def series_of(
    media: Sequence[Path], frames: Sequence[int], *, max_tokens: int = 8
) -> tuple[Series, ...]:
    """Return the series for *media*: one for each number of frames, pictures in the first.

    vLLM is told the number of frames for all of a server's videos, hence a series for each.

    Args:
        media: Files, their suffix says what they are.
        frames: How many frames of each video are shown to the model; empty: as many as vLLM likes.
        max_tokens: Length of the answers.
    """
    files = [(path, Medium.from_file(path)) for path in media]
    videos = [(path, medium) for path, medium in files if medium.content_type.startswith(VIDEO)]
    pictures = [pair for pair in files if pair not in videos]
    counts: list[int | None] = [*frames] if videos and frames else [None]
    series = []
    for number, count in enumerate(counts):
        cases = [
            Case(
                label=path.name if count is None else f"{path.name}, {count} frames",
                question=Question("What happens in this video?", (medium,), max_tokens=max_tokens),
            )
            for path, medium in videos
        ]
        if number == 0:
            cases += [
                Case(
                    label=path.name,
                    question=Question("What is in this picture?", (medium,), max_tokens=max_tokens),
                )
                for path, medium in pictures
            ]
        arguments = () if count is None else ("--media-io-kwargs", _frames(count))
        series.append(Series(cases=tuple(cases), arguments=arguments))
    return tuple(series)


def _frames(count: int) -> str:
    # The general loader: those made for a model take frames by time, and heed no number of them.
    return json.dumps({"video": {"num_frames": count, "video_backend": "opencv"}})
