"""A promise is of the right content, shape and element type, or it is none."""

from __future__ import annotations

import attrs
import pytest

from eccache.app.promises.lookup import EntryLookup
from eccache.app.promises.lookup_job import Finding
from eccache.app.promises.promised_copy import PromisedCopy
from eccache.domain.entry_ref import EntryRef
from eccache.domain.outcomes import LookupOutcome
from eccache.domain.tensor_spec import TensorSpec
from eccache.ports.lookup import Item, PermittedSave
from eccache.testing.clock import ManualClock
from eccache.testing.frames import frame_of, ref_of
from eccache.testing.telemetry import RecordingTelemetry
from tests.unit.promises.ledgers import Ledger
from tests.unit.promises.parts import (
    TrackedCopy,
    ample_budget,
    job_of,
    memfd_copies,
    memory_store,
)

CAT, DOG = "ca" * 32, "d0" * 32


@attrs.define(eq=False)
class Known:
    """A content whose digest a test chooses."""

    answer: str | None
    asked: int = 0

    def digest(self) -> str | None:
        """Return what the test says."""
        self.asked += 1
        return self.answer


REF = ref_of("a")
ENTRIES = {"bound to the cat": attrs.evolve(REF, content=CAT), "bound to nothing": REF}


@pytest.mark.parametrize(
    ("entry", "content", "found"),
    [
        ("bound to the cat", CAT, True),
        ("bound to the cat", DOG, False),
        ("bound to the cat", None, True),
        ("bound to nothing", CAT, False),
        ("bound to nothing", None, True),
    ],
)
def test_an_entry_is_found_by_the_content_it_was_made_of(
    entry: str, content: str | None, *, found: bool
) -> None:
    """One id, two contents: never each other's. Who knows the id alone takes what is there."""
    store, telemetry = memory_store(), RecordingTelemetry()
    store.put(ENTRIES[entry], frame_of(ENTRIES[entry]))
    lookup = EntryLookup(store, memfd_copies(), ample_budget(), ManualClock(), telemetry)
    job = attrs.evolve(job_of(REF), content=None if content is None else Known(content))
    finding: Finding = lookup(job)
    if found:
        assert isinstance(finding, PromisedCopy)
        asked = Item("a", 4, content=None if content is None else Known(content))
        assert finding.serves(asked)
        assert (entry == "bound to the cat") is finding.serves(Item("a", 4, content=Known(CAT)))
        finding.close()
    else:
        assert finding is LookupOutcome.MISS
        assert store.contains(REF), "it is no damage"


def test_a_content_that_can_not_be_told_is_a_miss() -> None:
    """What should be known and is not is not replaced by the id's word."""
    store, telemetry = memory_store(), RecordingTelemetry()
    store.put(REF, frame_of(REF))
    lookup = EntryLookup(store, memfd_copies(), ample_budget(), ManualClock(), telemetry)
    assert lookup(attrs.evolve(job_of(REF), content=Known(None))) is LookupOutcome.MISS
    assert 0 == telemetry.counters["bytes_read"]


@pytest.mark.parametrize(
    ("item", "serves"),
    [
        (Item("a", 4), True),
        (Item("a", 4, width=16, dtype="bfloat16"), True),
        (Item("a", 5, width=16, dtype="bfloat16"), False),
        (Item("a", 4, width=17, dtype="bfloat16"), False),
        (Item("a", 4, width=16, dtype="float16"), False),
        (Item("a", 4, content=Known(CAT)), True),
        (Item("a", 4, content=Known(DOG)), False),
        (Item("a", 4, content=Known(None)), False),
    ],
)
def test_rows_width_type_and_content_are_what_is_needed(item: Item, *, serves: bool) -> None:
    """Whatever is known of an input must hold for the copy, before it is promised."""
    spec = TensorSpec("bfloat16", (4, 16))
    copy = PromisedCopy(TrackedCopy(4096), ample_budget(), spec, CAT)
    assert serves is copy.serves(item)


@pytest.mark.parametrize("shape", [(), (4,), (4, 1, 1)])
def test_what_is_no_encoder_output_serves_nothing(shape: tuple[int, ...]) -> None:
    """An entry of the library's under a vLLM id."""
    copy = PromisedCopy(TrackedCopy(4096), ample_budget(), TensorSpec("bfloat16", shape))
    assert not copy.serves(Item("a", 4))


def test_an_entry_without_content_never_serves_a_known_one() -> None:
    """Nor where nothing at all could be told."""
    copy = PromisedCopy(TrackedCopy(4096), ample_budget(), TensorSpec("bfloat16", (4, 16)))
    assert not copy.serves(Item("a", 4, content=Known(CAT)))
    assert not copy.serves(Item("a", 4, content=Known(None)))


def test_a_copy_that_does_not_fit_is_not_promised() -> None:
    """The look-up was for one content; a request of another content waits for it in vain."""
    ledger = Ledger()
    cat, dog = Item("a", 4, content=Known(CAT)), Item("a", 4, content=Known(DOG))
    assert not ledger.port.ensure("cat", [cat])
    assert not ledger.port.ensure("dog", [dog])
    copy = PromisedCopy(TrackedCopy(4096), ledger.budget, TensorSpec("bfloat16", (4, 1)), CAT)
    ledger.budget.reserve(4096)
    ledger.lookups.answer(ledger.lookups.job("a"), copy)
    assert ledger.port.ensure("dog", [dog])
    assert (1, 1) == (ledger.count("misses"), ledger.count("promised"))
    assert ledger.port.ensure("cat", [cat])
    ledger.port.finished("cat")
    assert not ledger.port.is_promised("a")


def test_a_copy_that_fits_nobody_is_closed() -> None:
    """Another width than the encoder makes: the encoder runs."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [Item("a", 4, width=7)])
    assert ledger.lookups.find("a").nbytes
    assert ledger.port.ensure("r", [Item("a", 4, width=7)])
    assert not ledger.port.is_promised("a")
    assert 1 == ledger.count("misses")
    assert [] == ledger.lookups.open_copies


def test_a_look_up_knows_variant_and_content() -> None:
    """The name is the variant's; the content goes along for whoever reads the entry."""
    asked: list[EntryRef] = []
    ledger = Ledger()
    known = Known(CAT)
    item = Item("a", 4, variant="tenant", content=known)
    assert not ledger.port.ensure("r", [item])
    job = ledger.lookups.job("a")
    asked.append(job.ref)
    assert job.content is known
    assert 0 == known.asked, "taking a digest is not the scheduler's business"
    assert [ref_of("a", variant="tenant")] == asked


def test_a_permission_to_save_says_as_what() -> None:
    """The worker sees no request: variant and content come from the scheduler's side."""
    ledger = Ledger()
    ledger.port.allocated("r", Item("a", 4, variant="tenant", content=Known(CAT)), storable=True)
    ledger.port.allocated("r", Item("b", 4), storable=True)
    ledger.port.allocated("r", Item("c", 4, content=Known(None)), storable=True)
    expected = (PermittedSave("a", "tenant", CAT), PermittedSave("b"))
    assert expected == ledger.port.take_step().saves
