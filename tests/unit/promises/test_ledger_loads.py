"""A copy stays until every rank is done with every load of it."""

from eccache.app.promises.loads import LoadsInFlight
from eccache.app.promises.promised_copy import PromisedCopy
from eccache.domain.tensor_spec import TensorSpec
from eccache.ports.lookup import PromisedLoad
from tests.unit.promises.ledgers import A, Ledger
from tests.unit.promises.parts import TrackedCopy, ample_budget


def copy_of(fd: int) -> PromisedCopy:
    """Return a copy that is told apart by its descriptor."""
    return PromisedCopy(TrackedCopy(4096, fd=fd), ample_budget(), TensorSpec("int8", (1, 1)))


class Loads(LoadsInFlight):
    """Loads of two ranks that remember what they released."""

    def __init__(self) -> None:
        self.released: list[PromisedCopy] = []
        super().__init__(2, 10.0, self.released.append)


def test_a_load_tells_a_worker_where_the_copy_is() -> None:
    """Process, descriptor, length, and an id that no other load has."""
    loads = Loads()
    loads.begin("a", copy_of(5))
    loads.begin("b", copy_of(6))
    expected = (PromisedLoad("a", 1, 1, 5, 4096), PromisedLoad("b", 2, 1, 6, 4096))
    assert expected == loads.take_planned(0.0)
    assert () == loads.take_planned(0.0)


def test_the_last_acknowledgement_releases_the_copy() -> None:
    """With one rank still to come, the copy stays."""
    loads = Loads()
    copy = copy_of(5)
    loads.begin("a", copy)
    loads.acknowledge(1, 1)
    assert [] == loads.released
    loads.acknowledge(1, 1)
    assert [copy] == loads.released
    assert 0 == len(loads)


def test_acknowledgements_of_all_ranks_may_come_together() -> None:
    """The host adds its ranks' reports up."""
    loads = Loads()
    loads.begin("a", copy_of(5))
    loads.acknowledge(1, 2)
    assert 1 == len(loads.released)


def test_an_acknowledgement_too_many_changes_nothing() -> None:
    """A report that is told twice, or is of another life, releases nothing twice."""
    loads = Loads()
    loads.begin("a", copy_of(5))
    loads.acknowledge(1, 3)
    loads.acknowledge(1, 1)
    loads.acknowledge(99, 1)
    assert 1 == len(loads.released)


def test_loads_that_nobody_acknowledges_end_by_age() -> None:
    """The oldest ends at its time, not before; younger ones go on."""
    loads = Loads()
    loads.begin("a", copy_of(5))
    loads.take_planned(0.0)
    loads.begin("b", copy_of(6))
    loads.take_planned(1.0)
    assert 0 == loads.expire(9.9)
    assert 1 == loads.expire(10.0)
    assert [5] == [copy.fd for copy in loads.released]
    assert 1 == loads.expire(11.0)
    assert 0 == loads.expire(99.0)


def test_a_load_that_the_workers_were_not_told_of_does_not_age() -> None:
    """However long a step takes to plan, its copies are open when it goes out."""
    loads = Loads()
    loads.begin("a", copy_of(5))
    assert 0 == loads.expire(1e9)
    loads.take_planned(1e9)
    assert 0 == loads.expire(1e9 + 9)
    assert 1 == loads.expire(1e9 + 10)


def test_the_copy_of_an_input_that_is_being_loaded_is_at_hand() -> None:
    """It can be promised again, until its load is over."""
    loads = Loads()
    copy = copy_of(5)
    assert loads.copy_of("a") is None
    loads.begin("a", copy)
    assert copy is loads.copy_of("a")
    loads.acknowledge(1, 2)
    assert loads.copy_of("a") is None


def test_the_end_of_an_earlier_load_leaves_a_later_one_at_hand() -> None:
    """Two loads of one input end apart."""
    loads = Loads()
    first, second = copy_of(5), copy_of(6)
    loads.begin("a", first)
    loads.begin("a", second)
    loads.acknowledge(1, 2)
    assert second is loads.copy_of("a")
    loads.acknowledge(2, 2)
    assert loads.copy_of("a") is None


def test_loads_of_one_input_may_end_in_any_order() -> None:
    """The later one first: the earlier one still ends, and nothing is at hand meanwhile."""
    loads = Loads()
    first, second = copy_of(5), copy_of(6)
    loads.begin("a", first)
    loads.begin("a", second)
    loads.acknowledge(2, 2)
    assert loads.copy_of("a") is None
    loads.acknowledge(1, 2)
    assert [second, first] == loads.released


def test_closing_ends_every_load() -> None:
    """Nothing stays, planned or not."""
    loads = Loads()
    loads.begin("a", copy_of(5))
    loads.begin("b", copy_of(6))
    loads.close()
    assert [5, 6] == [copy.fd for copy in loads.released]
    assert () == loads.take_planned(0.0)


def test_what_was_promised_goes_out_whatever_fails() -> None:
    """The framework will not run the encoder: a step without the load would end it."""
    ledger = Ledger()
    ledger.promise("r", A)
    assert ledger.port.is_promised("a")
    ledger.port.allocated("r", A, storable=True)

    def fail() -> None:
        raise MemoryError

    ledger.lookups.findings = fail  # type: ignore[method-assign, assignment]
    assert ["a"] == [load.mm_hash for load in ledger.port.take_step().loads]
    assert 1 == ledger.count("faults:ledger")
