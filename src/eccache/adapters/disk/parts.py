"""What a store and its upkeep are made of."""

from __future__ import annotations

import random
from typing import Self

import attrs

from eccache.adapters.disk.accounting import Accounting
from eccache.adapters.disk.admission import Admission
from eccache.adapters.disk.directories import Directories
from eccache.adapters.disk.eviction import Evictor
from eccache.adapters.disk.layout import Layout
from eccache.adapters.disk.notices import Notices
from eccache.adapters.disk.policy import DiskPolicy
from eccache.adapters.disk.publisher import Publisher
from eccache.adapters.disk.quarantine import Quarantine
from eccache.adapters.disk.recency import Recency
from eccache.adapters.disk.temporaries import Temporaries
from eccache.ports.clock import Clock
from eccache.ports.file_operations import FileOperations
from eccache.ports.telemetry import Telemetry


@attrs.frozen(kw_only=True, eq=False)
class DiskParts:
    """The parts of one root, connected."""

    layout: Layout
    files: FileOperations
    policy: DiskPolicy
    notices: Notices
    directories: Directories
    recency: Recency
    temporaries: Temporaries
    publisher: Publisher
    accounting: Accounting
    evictor: Evictor
    admission: Admission
    quarantine: Quarantine

    @classmethod
    def assemble(
        cls,
        root: str,
        *,
        policy: DiskPolicy,
        files: FileOperations,
        clock: Clock,
        telemetry: Telemetry,
        rng: random.Random | None = None,
    ) -> Self:
        """Return the parts of *root*, an absolute path. Touches no file."""
        layout = Layout(root)
        notices = Notices(telemetry, root)
        directories = Directories(layout, files, policy)
        recency = Recency(files, clock, policy)
        temporaries = Temporaries(layout, files, directories, clock, policy)
        publisher = Publisher(files, directories, temporaries, recency, policy, notices)
        accounting = Accounting(layout, files, temporaries, publisher)
        draw = rng or random.Random()  # noqa: S311 - no secret
        evictor = Evictor(files, accounting, recency, draw, telemetry)
        admission = Admission(layout, files, policy, accounting, evictor, temporaries, notices)
        return cls(
            layout=layout,
            files=files,
            policy=policy,
            notices=notices,
            directories=directories,
            recency=recency,
            temporaries=temporaries,
            publisher=publisher,
            accounting=accounting,
            evictor=evictor,
            admission=admission,
            quarantine=Quarantine(layout, files, directories, policy),
        )
