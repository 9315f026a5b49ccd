"""Which inputs may be shared: configuration first, the id's look second, the content wherever it is known."""

from __future__ import annotations

import attrs
import hypothesis.strategies as st
import pytest
from hypothesis import given

from eccache.domain.key import mm_digest
from eccache.domain.policy import BypassReason, InputFacts, SharingPolicy
from tests.unit.domain.text import ANY_TEXT, HARD_TEXT

DIGEST = "0123456789abcdef" * 4
PLAIN = InputFacts(input_id=DIGEST)
STRICT = SharingPolicy()
TRUSTING = SharingPolicy(trust_client_ids=True)
BY_PATTERN = SharingPolicy(trusted_ids=r"gateway-[0-9a-f]{40}")


def test_a_content_hash_may_be_shared() -> None:
    """Without anything else to say against it."""
    assert STRICT.bypass(PLAIN) is None


@pytest.mark.parametrize(
    "input_id",
    [
        "",
        DIGEST[:-1],
        DIGEST + "0",
        DIGEST.upper(),
        DIGEST + "\n",
        "\n" + DIGEST,
        DIGEST[:-1] + "g",
        "\uff10" * 64,
        "renderer0-mm-1-image-0",
        "my-picture",
        f"adapter:{DIGEST}",
        DIGEST * 2,
    ],
)
def test_whatever_is_no_content_hash_is_shared_by_nobody(input_id: str) -> None:
    """Counters, names that clients choose, and what only looks a little like a hash."""
    facts = attrs.evolve(PLAIN, input_id=input_id)
    assert STRICT.bypass(facts) is BypassReason.CLIENT_ID


def test_the_length_of_a_hash_is_that_of_the_servers_algorithm() -> None:
    """Where ids are SHA-512, 64 digits are somebody else's."""
    longer = SharingPolicy(digest_digits=128)
    assert longer.bypass(PLAIN) is BypassReason.CLIENT_ID
    assert longer.bypass(attrs.evolve(PLAIN, input_id=DIGEST * 2)) is None


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (attrs.evolve(PLAIN, passthrough=True), BypassReason.PASSTHROUGH),
        (attrs.evolve(PLAIN, adapter=""), BypassReason.LORA),
        (attrs.evolve(PLAIN, salt=""), BypassReason.SALTED),
        (attrs.evolve(PLAIN, salt="tenant"), BypassReason.SALTED),
    ],
)
@pytest.mark.parametrize(
    "policy", [STRICT, TRUSTING, BY_PATTERN], ids=["strict", "trust", "pattern"]
)
def test_what_may_not_be_shared_is_not_whatever_the_trust(
    policy: SharingPolicy, facts: InputFacts, reason: BypassReason
) -> None:
    """Embeddings of clients, adapters that nobody knows, tenants."""
    assert reason is policy.bypass(facts)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (SharingPolicy(encoder_decoder=True), BypassReason.ENCODER_DECODER),
        (SharingPolicy(unproven=True), BypassReason.UNPROVEN),
        (SharingPolicy(unproven=True, trust_client_ids=True), BypassReason.UNPROVEN),
    ],
)
def test_where_the_encoder_is_not_known_nothing_is_shared(
    policy: SharingPolicy, reason: BypassReason
) -> None:
    """Whatever the input is."""
    assert reason is policy.bypass(attrs.evolve(PLAIN, content_known=True))


@given(ANY_TEXT | HARD_TEXT)
def test_a_trusted_id_is_shared_only_with_its_content(input_id: str) -> None:
    """Also one that looks like a hash: a server hashes a client's id together with options."""
    facts = InputFacts(input_id=input_id)
    assert TRUSTING.bypass(facts) is BypassReason.UNBOUND
    assert TRUSTING.bypass(attrs.evolve(facts, content_known=True)) is None


def test_a_pattern_names_the_ids_that_are_trusted() -> None:
    """As a whole; others are what they were, and hashes stay what they are."""
    trusted = InputFacts(input_id="gateway-" + "a" * 40, content_known=True)
    assert BY_PATTERN.bypass(trusted) is None
    assert BY_PATTERN.bypass(attrs.evolve(trusted, content_known=False)) is BypassReason.UNBOUND
    assert BY_PATTERN.bypass(attrs.evolve(PLAIN, content_known=True)) is None
    for other in ("x" + trusted.input_id, trusted.input_id + "0", "my-picture"):
        facts = attrs.evolve(trusted, input_id=other)
        assert BY_PATTERN.bypass(facts) is BypassReason.CLIENT_ID


def test_entries_are_bound_to_content_unless_that_is_switched_off() -> None:
    """And always where clients' ids are trusted."""
    off = SharingPolicy(bind_content=False)
    assert (True, False) == (STRICT.binds, off.binds)
    assert attrs.evolve(off, trust_client_ids=True).binds
    assert attrs.evolve(off, trusted_ids="x").binds


def test_a_hash_is_shared_also_where_its_content_is_out_of_reach() -> None:
    """Bound where it can be; not bypassed where it can't."""
    assert STRICT.bypass(attrs.evolve(PLAIN, content_known=False)) is None


FACTS = st.builds(
    InputFacts,
    input_id=st.just(DIGEST),
    salt=st.none() | ANY_TEXT | HARD_TEXT,
    adapter=st.none() | st.sampled_from(["a" * 32, "b" * 32]),
)


@given(FACTS, FACTS)
def test_only_equal_salts_and_adapters_share(first: InputFacts, second: InputFacts) -> None:
    """Each combination has entries of its own."""
    policy = SharingPolicy(isolate_salted=True)
    assert policy.bypass(first) is policy.bypass(second) is None
    names = {mm_digest(DIGEST, policy.variant(facts)) for facts in (first, second)}
    alike = (first.salt, first.adapter) == (second.salt, second.adapter)
    assert (1 if alike else 2) == len(names)


def test_a_plain_input_has_no_variant_and_a_salt_leaves_no_trace() -> None:
    """What a name is made of does not tell the tenant's salt."""
    assert "" == STRICT.variant(PLAIN)
    assert "secret" not in STRICT.variant(attrs.evolve(PLAIN, salt="secret"))
