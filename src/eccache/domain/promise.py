r"""The states of a promise: what the scheduler's side knows of one item.

```
            looked up              verified             allocated in a step    all ranks acked
  (none) ----------> PENDING ----------------> READY ------------------> LOADING ------------> (none)
                       |  \                    |  ^                        |
                       |   \ miss, fault,      |  +------------------------+
                       |    \ deadline         |    needed again, the copy is still there
                       |     +-----> (none)    +--------> (none), copy closed
                       |                         requests finished, age
                       |  requests finished, deadline
                       +----------> ABANDONED: the look-up's thread closes the copy when it is done
```

Only READY answers True. A copy is closed when no request holds it and no rank has yet to load it.
"""

from __future__ import annotations

import enum


class PromiseState(enum.Enum):
    """Where a promise stands."""

    PENDING = "pending"
    READY = "ready"
    LOADING = "loading"
    ABANDONED = "abandoned"
