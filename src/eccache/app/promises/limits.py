"""Every bound of the promise ledger, in one value."""

from __future__ import annotations

import attrs

_not_negative = attrs.validators.ge(0)
_positive = attrs.validators.gt(0.0)


@attrs.frozen(kw_only=True)
class LedgerLimits:
    """What bounds waiting, memory and age of promises.

    Attributes:
        lookup_timeout_seconds: how long a request may be deferred, from its first deferral on.
        max_deferred_requests: how many requests may be deferred at a time; further ones are answered at
            once, and what they need is computed.
        max_promised_nbytes: bytes of all copies together, from before they are filled until their memory
            is given back.
        max_promised_copies: their number; each occupies a descriptor of the scheduler's process.
        promise_ttl_seconds: age at which a copy that no step has taken is given up.
        load_ack_timeout_seconds: time after which a copy is closed though not every rank has said that
            it has loaded it. A rank that has not begun by then finds nothing, which ends the engine, so
            it has to be longer than a step can take, compilation and capture included.
        expected_poll_seconds: how often an entry that is still on its way is looked for.
    """

    lookup_timeout_seconds: float = attrs.field(default=5.0, validator=_positive)
    max_deferred_requests: int = attrs.field(default=256, validator=_not_negative)
    max_promised_nbytes: int = attrs.field(default=1 << 30, validator=_not_negative)
    max_promised_copies: int = attrs.field(default=512, validator=_not_negative)
    promise_ttl_seconds: float = attrs.field(default=60.0, validator=_positive)
    load_ack_timeout_seconds: float = attrs.field(default=600.0, validator=_positive)
    expected_poll_seconds: float = attrs.field(default=0.01, validator=_positive)
