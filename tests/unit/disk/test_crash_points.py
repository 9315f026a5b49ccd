"""A process dies, or the power fails, at every single operation of a put or a removal."""

import functools
import random
from collections.abc import Callable, Iterator

import pytest

from eccache.adapters.disk import DiskStore, Durability
from eccache.adapters.disk.upkeep.walk import remove_empty_directories
from eccache.domain.outcomes import PutOutcome, RemoveReason
from eccache.testing.frames import frame_bytes, frame_of, ref_of
from eccache.testing.simulated_process import ProcessDied
from tests.unit.disk.places import LAYOUT, SimulatedPlace, policy_of, put, read

REF = ref_of("an input")
OTHER = ref_of("another input")
OLD = frame_bytes(frame_of(REF, 0, rows=4))
NEW = frame_bytes(frame_of(REF, 1, rows=5))

Verb = Callable[[DiskStore], object]


def put_new(store: DiskStore) -> object:
    """Put another shape over what is there."""
    return put(store, REF, 1, rows=5)


def remove(reason: RemoveReason, store: DiskStore) -> object:
    """Remove what is there."""
    return store.remove(REF, reason)


VERBS: dict[str, Verb] = {
    "put": put_new,
    **{f"remove {reason.value}": functools.partial(remove, reason) for reason in RemoveReason},
}


def crashes(verb: Verb, *, durability: Durability, fresh: bool) -> Iterator[SimulatedPlace]:
    """Yield a place in which *verb* died, once for each of its operations."""
    step = 0
    while True:
        place = SimulatedPlace(policy=policy_of(durability=durability))
        process = place.process()
        store = place.store(process)
        if not fresh:
            put(store, OTHER)
            put(store, REF)
        process.steps_left = step
        try:
            verb(store)
        except ProcessDied:
            process.die()
            yield place
        else:
            return
        step += 1


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_process_that_dies_leaves_the_old_the_new_or_nothing(verb: Verb, *, fresh: bool) -> None:
    """Whatever the operation, what is there is whole, other entries stay, and the root is usable."""
    possible = {None if fresh else OLD, NEW if verb is put_new else None}
    deaths = 0
    for place in crashes(verb, durability=Durability.PROCESS, fresh=fresh):
        deaths += 1
        store = place.store()
        assert read(store, REF) in possible
        assert fresh or read(store, OTHER) is not None
        put_new(store)
        assert NEW == read(store, REF)
        place.parts().temporaries.collect()
        assert [] == place.unfinished()
        sizes = sum(info.nbytes for info in store.entries())
        assert sizes + place.nbytes_in("/cache/v1/quarantine") == place.nbytes_in()
    assert deaths > 0


@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_leaves_the_old_the_new_or_damage_that_is_seen(seed: int) -> None:
    """Nothing is synced, so anything may be lost, and nothing wrong is read."""
    rng = random.Random(seed)
    for place in crashes(put_new, durability=Durability.PROCESS, fresh=False):
        place.disk.cut_power(rng)
        store = place.store()
        assert read(store, REF) in (OLD, NEW, None)
        put_new(store)
        assert NEW == read(store, REF)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fresh", [True, False])
def test_durability_power_keeps_what_was_stored(seed: int, *, fresh: bool) -> None:
    """An entry that was reported stored, or present, survives a power cut at any later operation."""
    rng = random.Random(seed)
    for place in crashes(put_new, durability=Durability.POWER, fresh=fresh):
        survivor = place.store()
        outcome = put_new(survivor)
        place.disk.cut_power(rng)
        store = place.store()
        assert NEW == read(store, REF), outcome
        assert fresh or read(store, OTHER) is not None


@pytest.mark.parametrize("seed", range(8))
def test_a_directory_that_was_removed_and_made_again_is_made_durable_again(seed: int) -> None:
    """What `gc` removes since it is empty comes back with the next entry, and stays with it."""
    place = SimulatedPlace(policy=policy_of(durability=Durability.POWER))
    store = place.store()
    put(store, OTHER)  # so that the namespace's own directory stays
    put_new(store)
    assert store.remove(REF, RemoveReason.REMOVED)
    assert remove_empty_directories(place.process(), LAYOUT)
    put_new(store)
    place.disk.cut_power(random.Random(seed))
    assert NEW == read(place.store(), REF)


@pytest.mark.parametrize("seed", range(4))
def test_an_old_entry_stays_until_the_new_one_is_durable(seed: int) -> None:
    """With durability `power`, replacing an entry never loses both."""
    rng = random.Random(seed)
    for place in crashes(put_new, durability=Durability.POWER, fresh=False):
        place.disk.cut_power(rng)
        assert read(place.store(), REF) in (OLD, NEW)


def test_after_a_power_cut_the_cap_holds() -> None:
    """The accounting may have been lost; it is made anew before anything more is admitted."""
    for seed in range(8):
        place = SimulatedPlace(policy=policy_of(10 * 8192))
        store = place.store()
        for number in range(10):
            put(store, ref_of(f"input {number}"))
        # The entries were written back by chance, the accounting was not.
        for node in place.disk.nodes():
            if node is not place.disk.find("/cache/v1/usage"):
                node.durable_data = bytes(node.data)
                node.durable_names = dict(node.names)
        place.disk.find("/cache/v1/usage").durable_data = bytes(64 + 4096 * 16)
        place.disk.cut_power(random.Random(seed))
        assert PutOutcome.STORED is put(place.store(), ref_of("one more"))
        assert place.nbytes_in() <= 10 * 8192


def test_after_any_death_the_next_put_keeps_the_cap() -> None:
    """Wherever a writer dies, too much may be counted for a while, but never too little."""
    step = 0
    while True:
        place = SimulatedPlace(policy=policy_of(4 * 8192))
        process = place.process()
        store = place.store(process)
        for number in range(4):
            put(store, ref_of(f"input {number}"))
        process.steps_left = step
        try:
            put(store, REF)
        except ProcessDied:
            process.die()
        else:
            break
        assert PutOutcome.STORED is put(place.store(), ref_of("one more"))
        assert place.nbytes_in() <= 4 * 8192, step
        step += 1
    assert step > 30
