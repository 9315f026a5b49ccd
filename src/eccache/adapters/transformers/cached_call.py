"""A method of a model that answers from the cache what it has answered before."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeVar

import attrs
import torch

from eccache.adapters.transformers.bypass import Bypass, UncacheableError
from eccache.adapters.transformers.call import EncoderCall, bind
from eccache.adapters.transformers.circumstances import circumstances, require_plain_execution
from eccache.adapters.transformers.code_survey import Transparent
from eccache.adapters.transformers.content_key import content_key
from eccache.adapters.transformers.convention import divide
from eccache.adapters.transformers.fingerprint import FingerprintKeeper
from eccache.adapters.transformers.output_tree import OutputTree, join, made_again, take_apart
from eccache.adapters.transformers.packing import pack, unpack
from eccache.adapters.transformers.scope import Observation, ScopeWatch
from eccache.adapters.transformers.seam import Seam
from eccache.adapters.transformers.settings import Plain
from eccache.adapters.transformers.statistics import Statistics
from eccache.ports.tensor_cache import TensorCache

R = TypeVar("R")

_computing: Final = ContextVar("eccache_transformers_computing", default=False)
"""Set while a method runs for the cache: methods that it calls are part of it, and not cached."""


class Guard(Protocol):
    """Calls a function; a fault in it is reported and amounts to *otherwise*."""

    def __call__(self, where: str, function: Callable[[], R], otherwise: R) -> R:
        """Return what *function* returns, or *otherwise* if it raises."""
        ...


@attrs.frozen(kw_only=True)
class CallParts:
    """What a cached call works with.

    Attributes:
        cache: holds the outputs.
        statistics: counts.
        guard: turns a fault of the cache into a miss.
        per_item: whether calls are divided into items where that is known to be right.
        every_field: whether fields that only a caller's own code would read are stored too.
    """

    cache: TensorCache[torch.Tensor]
    statistics: Statistics
    guard: Guard
    per_item: bool
    every_field: bool


@attrs.define
class _Item:
    """One item of a call.

    Attributes:
        call: what computes it.
        key: its id.
        found: its output, once it is known.
    """

    call: EncoderCall
    key: str
    found: OutputTree | None


@attrs.frozen
class _Plan:
    """A call that may be answered from the cache."""

    items: list[_Item]
    observation: Observation
    fingerprint: str
    device: torch.device


class CachedCall(Transparent):
    """Stands in for a method on one object. Any thread may call it.

    Equal to the method in signature and result, except for fields that are not kept. The items of a call
    that are not in the cache are encoded one at a time, so that what an item's output is does not depend on
    its company: it equals, bit for bit, that of the item alone.

    A copy of the model, made in memory or by pickling, has its own method back: it would otherwise serve
    the original's outputs, whatever becomes of the copy's weights.

    Args:
        seam: which method.
        model: the whole model.
        keeper: the fingerprint of the seam's scope.
        parts: what to work with.
    """

    def __init__(
        self, seam: Seam, model: torch.nn.Module, keeper: FingerprintKeeper, parts: CallParts
    ) -> None:
        self._seam = seam
        self._model = model
        self._keeper = keeper
        self._parts = parts
        self.replaced = vars(seam.owner).get(seam.attribute)
        self._signed: tuple[object, inspect.Signature] = (None, inspect.Signature())
        self._homes = tuple(kind.__module__ for kind in type(seam.owner).__mro__)
        self._dropped = frozenset() if parts.every_field else seam.convention.dropped
        self._watched: set[str] = set()
        self._divides = parts.per_item
        self._given_up: UncacheableError | None = None
        self._installed = False
        functools.update_wrapper(self, self._stock(), updated=())

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return getattr, (self._seam.owner, self._seam.attribute)

    @property
    def seam(self) -> Seam:
        """Which method this stands in for."""
        return self._seam

    @property
    def occupied(self) -> bool:
        """Whether another cached call had the method's place when this one was made."""
        return isinstance(self.replaced, CachedCall)

    def install(self) -> None:
        """Take the method's place."""
        setattr(self._seam.owner, self._seam.attribute, self)
        self._installed = True

    def restore(self) -> None:
        """Give the method its place back; where something wraps this meanwhile, pass calls on. Idempotent."""
        self._installed = False
        if vars(self._seam.owner).get(self._seam.attribute) is not self:
            return
        delattr(self._seam.owner, self._seam.attribute)
        if self.replaced is not None:
            setattr(self._seam.owner, self._seam.attribute, self.replaced)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the method's own types
        """Answer from the cache, or let the method compute it and store that."""
        if torch.compiler.is_compiling() or not self._installed or _computing.get():
            return self._stock()(*args, **kwargs)
        plan = self._parts.guard("transformers.look_up", lambda: self._plan(args, kwargs), None)
        if plan is None:
            return self._stock()(*args, **kwargs)
        misses = 0
        try:
            for item in plan.items:
                if item.found is None:
                    item.found = self._computed(item, plan)
                    misses += 1
            answer = self._joined(plan)
        except UncacheableError as obstacle:
            self._bypass(obstacle)
            return self._stock()(*args, **kwargs)
        self._parts.statistics.served(hits=len(plan.items) - misses, misses=misses)
        return answer

    def _stock(self) -> Callable[..., Any]:
        """Return the model's own method, as it is now: its class's may be replaced at any time."""
        if self.replaced is not None:
            return self.replaced  # type: ignore[return-value] # what lies in a method's place
        owner = self._seam.owner
        method: Callable[..., Any] = getattr(type(owner), self._seam.attribute).__get__(owner)
        return method

    def _signature(self) -> inspect.Signature:
        method = self._stock()
        function = getattr(method, "__func__", method)
        signed, signature = self._signed
        if signed is not function:
            signature = inspect.signature(method)
            self._signed = (function, signature)
        return signature

    def _plan(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Plan | None:
        """Look everything up; None if the call is to be bypassed."""
        try:
            return self._looked_up(args, kwargs)
        except UncacheableError as obstacle:
            self._bypass(obstacle)
            return None

    def _looked_up(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Plan:
        if self._given_up is not None:
            raise UncacheableError(self._given_up.reason, str(self._given_up))
        self._require_plain_config()
        require_plain_execution()
        call = bind(self._signature(), args, kwargs)
        fingerprint, observation = self._keeper.current()
        context: dict[str, Plain] = {
            "model": fingerprint.digest,
            "method": self._seam.name,
            "circumstances": dict(circumstances(fingerprint.device)),
            "dropped": list[Plain](sorted(self._dropped)),
        }
        calls = (divide(call, self._seam.convention) if self._divides else None) or [call]
        items: dict[str, _Item] = {}
        listed: list[_Item] = []
        for one in calls:
            key = f"{self._seam.modality}/{content_key(one, context)}"
            if key not in items:
                found = self._parts.guard(
                    "transformers.read",
                    functools.partial(self._found, key, fingerprint.device),
                    None,
                )
                items[key] = _Item(one, key, found)
            listed.append(items[key])
        return _Plan(listed, observation, fingerprint.digest, fingerprint.device)

    def _found(self, key: str, device: torch.device) -> OutputTree | None:
        packed = self._parts.cache.get(key)
        if packed is None:
            return None
        tree = unpack(packed, device)
        made_again(
            tree, self._homes
        )  # what can't be made is found out while the encoder can still run
        return tree

    def _computed(self, item: _Item, plan: _Plan) -> OutputTree:
        """Run the encoder for one item and store what it returns."""
        token = _computing.set(True)
        try:
            output = self._run(item.call, plan)
        finally:
            _computing.reset(token)
        tree = take_apart(output, self._dropped, plan.device)
        self._parts.guard(
            "transformers.store",
            lambda: self._parts.cache.put(item.key, pack(tree), borrow=True),
            otherwise=False,
        )
        return tree

    def _run(self, call: EncoderCall, plan: _Plan) -> object:
        if plan.fingerprint in self._watched:
            return self._stock()(**call.arguments)
        with ScopeWatch(self._model, plan.observation) as watch:
            output = self._stock()(**call.arguments)
        if watch.used:
            used = ", ".join(sorted(watch.used))
            raise UncacheableError(
                Bypass.SCOPE,
                f"{self._seam.name} uses {used}, whose content is not digested",
                settled=True,
            )
        self._watched.add(plan.fingerprint)
        return output

    def _joined(self, plan: _Plan) -> object:
        trees = [item.found for item in plan.items if item.found is not None]
        try:
            whole = trees[0] if len(trees) == 1 else join(trees, self._seam.convention.stacked)
        except UncacheableError:
            self._divides = False
            raise
        return made_again(whole, self._homes)

    def _require_plain_config(self) -> None:
        config = self._seam.config
        if not getattr(config, "return_dict", True):
            raise UncacheableError(Bypass.POSITIONAL, "config.return_dict is False")
        for name in ("output_hidden_states", "output_attentions"):
            if getattr(config, name, False):
                raise UncacheableError(Bypass.INTERMEDIATES, f"config.{name} is True")

    def _bypass(self, obstacle: UncacheableError) -> None:
        if obstacle.settled:
            self._given_up = obstacle
        self._parts.statistics.bypassed(obstacle.reason, str(obstacle))
