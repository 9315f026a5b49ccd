"""The promise ledger keeps its promises, whatever happens around it and in whatever order.

The tester is tested too: a ledger from which one mechanism was taken away must be found out.
"""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from eccache.app.promises.ledger import LedgerParts, PromiseLedger
from tests.stateful.broken_ledgers import BROKEN
from tests.stateful.ledger_machine import LIMITS, RANKS, LedgerMachine

TestPromiseLedger = LedgerMachine.TestCase
TestPromiseLedger.settings = settings(stateful_step_count=60)

ENOUGH = settings(
    max_examples=2000,
    stateful_step_count=60,
    phases=[Phase.generate],
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("ledger", BROKEN)
def test_a_ledger_without_one_of_its_mechanisms_is_found_out(ledger: type[PromiseLedger]) -> None:
    """Each mechanism that keeps a promise is one whose absence this machine sees."""

    class Machine(LedgerMachine):
        def make_ledger(self, parts: LedgerParts) -> PromiseLedger:
            return ledger(parts, limits=LIMITS, ranks=RANKS)

    with pytest.raises(Exception, match=r"."):
        run_state_machine_as_test(Machine, settings=ENOUGH)
