"""CUDA's streams and events, as queues and places in them."""

from __future__ import annotations

from typing import cast

import torch

from eccache.adapters.torch.transfer import Device, Mark


class CudaQueue:
    """A stream of its own on one device. Implements `adapters.torch.transfer.CopyQueue`.

    Args:
        device: with its index.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> Mark:
        """Queue a copy and return the event behind it."""
        with torch.cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)
            return _recorded(self._stream)

    def here(self) -> Mark:
        """Return an event in the stream that is current in the calling thread."""
        return _recorded(torch.cuda.current_stream(self._device))

    def follow(self, mark: Mark) -> None:
        """Let this stream wait for an event."""
        self._stream.wait_event(cast("torch.cuda.Event", mark))

    def lead(self, mark: Mark) -> None:
        """Let the stream that is current in the calling thread wait for an event."""
        torch.cuda.current_stream(self._device).wait_event(cast("torch.cuda.Event", mark))


def _recorded(stream: torch.cuda.Stream) -> Mark:
    return cast("Mark", stream.record_event())


def device_of(place: torch.device) -> Device | None:
    """Return what copies to and from *place*, a CUDA device with its index; None for all others."""
    if place.type != "cuda":
        return None

    def pinned(nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)

    return Device(
        lambda: CudaQueue(place), pinned, lambda: _recorded(torch.cuda.current_stream(place))
    )
