r"""The states of a promise: what the scheduler's side knows of one item.

```
            submit                verified             taken by a step         all ranks acked
  (none) ----------> PENDING ----------------> READY ------------------> LOADING ------------> (none)
                        |  \  miss, fault,       |  request finished,
                        |   \ deadline           |  age, budget
                        |    +------> (none)     +--------> (none), copy closed
                        |  request finished
                        +----------> ABANDONED: the look-up's thread closes the copy when it is done
```
"""

from __future__ import annotations

import enum


class PromiseState(enum.Enum):
    """Where a promise stands."""

    PENDING = "pending"
    READY = "ready"
    LOADING = "loading"
    ABANDONED = "abandoned"
