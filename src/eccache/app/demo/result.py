"""What a run of the demo found out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class DemoResult:
    """Measured by `run_demo`; every time is from sending a request to its first token.

    Attributes:
        cold_ttft_seconds: The video question, before anything was stored.
        warm_ttft_seconds: The same question to the restarted server.
        photo_cold_ttft_seconds: The photo question, before anything was stored.
        photo_warm_ttft_seconds: The same question to the restarted server.
        hits: Encoder outputs of the two questions that the restarted server took from the cache.
        answers_equal: Whether both answers are the same before and after the restart.
        answers: The restarted server's answers, video first.
        entries: Files in the store.
        bytes_stored: Their size.
        model: Folder of the model.
        store: Folder of the store.
        logs: Folder of the server's logs.
        seconds: The whole demo.
    """

    cold_ttft_seconds: float
    warm_ttft_seconds: float
    photo_cold_ttft_seconds: float
    photo_warm_ttft_seconds: float
    hits: int
    answers_equal: bool
    answers: tuple[str, str]
    entries: int
    bytes_stored: int
    model: Path
    store: Path
    logs: Path
    seconds: float

    @property
    def succeeded(self) -> bool:
        """Whether the restarted server answered the same, from the cache."""
        return self.answers_equal and self.hits == len(self.answers)

    @property
    def warm_share(self) -> float:
        """Warm time to first token of the video, as a share of the cold one."""
        return self.warm_ttft_seconds / self.cold_ttft_seconds

    def to_json(self) -> str:
        """The result as one JSON object, for machines."""
        record: dict[str, Any] = attrs.asdict(self)
        return json.dumps(record | {"warm_share": self.warm_share}, indent=2, default=str)
