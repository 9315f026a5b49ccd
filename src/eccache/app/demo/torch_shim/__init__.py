"""Lets vLLM start beside a CPU build of torch.

PyPI's torchvision, torchaudio and torchcodec are linked against CUDA. Beside a CPU torch their
native libraries do not load and their imports fail, which ends vLLM before it reads a model.
`sitecustomize.py` in this folder cures it: it declares the two operators that torchvision misses,
and makes the others look absent. No model of the demo uses them. The folder goes on the
`PYTHONPATH` of vLLM's processes, and acts only on packages whose import really fails.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Final

DIRECTORY: Final = Path(__file__).parent
BROKEN_PACKAGES: Final = "TORCH_SHIM_BROKEN_PACKAGES"
"""Environment variable that tells `sitecustomize.py` what to cure, separated by commas."""

SYMPTOMS: Final = {
    "torchvision": "operator torchvision::",
    "torchaudio": "Could not load this library",
    "torchcodec": "Could not load this library",
}


@functools.cache
def broken_packages() -> tuple[str, ...]:
    """Find out which packages fail to import for want of CUDA.

    Tries the imports once, in processes of their own, which takes some seconds.

    Returns:
        Names from `SYMPTOMS`; none on a machine where the packages work or are not installed.
    """
    trials = {
        package: subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, "-c", f"import {package}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for package in SYMPTOMS
    }
    messages = {package: trial.communicate()[1] for package, trial in trials.items()}
    return tuple(package for package, symptom in SYMPTOMS.items() if symptom in messages[package])


def environment(python_path: tuple[str, ...]) -> dict[str, str]:
    """Variables for a process that imports vLLM.

    Args:
        python_path: What `PYTHONPATH` shall contain besides; it stays first.

    Returns:
        `PYTHONPATH`, and `BROKEN_PACKAGES` where there are any.
    """
    broken = broken_packages()
    if not broken:
        return {"PYTHONPATH": ":".join(python_path)}
    return {
        "PYTHONPATH": ":".join((*python_path, str(DIRECTORY))),
        BROKEN_PACKAGES: ",".join(broken),
    }
