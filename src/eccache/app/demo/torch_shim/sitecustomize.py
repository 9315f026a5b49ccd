"""Cures the packages that `TORCH_SHIM_BROKEN_PACKAGES` names, before anything imports them.

Python imports a module of this name at start. The next `sitecustomize` on the path, which this one
hides, runs too.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import cast

OPERATORS = ("nms", "qnms")
SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class DeclareOperators(MetaPathFinder):
    """Finds nothing; sees torchvision's first import pass by, and declares its operators."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Leave the finding to the others."""
        del path, target
        # Not at "torchvision": who only asks whether it is there would import torch.
        if name == "torchvision.extension":
            sys.meta_path.remove(self)
            import torch

            for operator in OPERATORS:
                torch.library.define(f"torchvision::{operator}", SIGNATURE)
        return None


def hide(package: str) -> None:
    """Make *package* look absent, to `import` and to `importlib.util.find_spec`."""
    cast("dict[str, ModuleType | None]", sys.modules)[package] = None


def run_hidden_sitecustomize() -> None:
    """Run the `sitecustomize` that would have run without this one."""
    folders = [Path(entry).resolve() for entry in sys.path]
    here = Path(__file__).parent.resolve()
    if here not in folders:
        return
    behind = sys.path[folders.index(here) + 1 :]
    spec = PathFinder.find_spec("sitecustomize", behind)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


broken = os.environ.get("TORCH_SHIM_BROKEN_PACKAGES", "").split(",")
if "torchvision" in broken:
    sys.meta_path.insert(0, DeclareOperators())
for name in {"torchaudio", "torchcodec"}.intersection(broken):
    hide(name)
run_hidden_sitecustomize()
