"""Shows a person what the demo found out, and how to go on."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eccache.app.demo.result import DemoResult
from eccache.app.demo.server import SMALL_MODEL_ARGUMENTS

if TYPE_CHECKING:
    from rich.console import Console


def transfer_config(store: str | Path) -> dict[str, Any]:
    """Value of vLLM's `--ec-transfer-config` for a server that stores and loads."""
    return {
        "ec_connector": "ECCacheConnector",
        "ec_connector_module_path": "eccache.app.vllm",
        "ec_role": "ec_both",
        "ec_connector_extra_config": {"local_disk": str(store)},
    }


def serve_command(result: DemoResult, environment: Mapping[str, str]) -> str:
    """The shell command that serves the demo's model from the demo's store.

    Args:
        result: of the demo.
        environment: variables without which vLLM does not start here.
    """
    settings = {"HF_HUB_OFFLINE": "1", **environment}
    return shlex.join(
        [
            *("env", *(f"{name}={value}" for name, value in settings.items() if value)),
            *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", str(result.model), *SMALL_MODEL_ARGUMENTS),
            *("--ec-transfer-config", json.dumps(transfer_config(result.store))),
        ]
    )


def print_report(console: Console, result: DemoResult, environment: Mapping[str, str]) -> None:
    """Print the table, the place of the files, and the command for the reader's own model.

    Args:
        console: where to.
        result: of the demo.
        environment: variables without which vLLM does not start here.
    """
    from rich.table import Table

    table = Table(title="The same questions before and after a restart of the server")
    table.add_column("time to first token")
    for heading in ("cold", "after the restart", "share"):
        table.add_column(heading, justify="right")
    for name, cold, warm in (
        ("video", result.cold_ttft_seconds, result.warm_ttft_seconds),
        ("photo", result.photo_cold_ttft_seconds, result.photo_warm_ttft_seconds),
    ):
        table.add_row(name, f"{cold:.2f} s", f"{warm:.2f} s", f"{warm / cold:.0%}")
    console.print()
    console.print(table)
    console.print(f"hits              {result.hits} of 2 encoder outputs were loaded, not computed")
    answers = "identical" if result.answers_equal else "DIFFERENT"
    console.print(f"answers           {answers} (the weights are random: the words mean nothing)")
    console.print(f"stored            {result.entries} entries, {result.bytes_stored:,} bytes")
    console.print("                  (video, photo, and a picture that warms the server up)")
    console.print(f"files             {result.store}", soft_wrap=True)
    console.print(f"server logs       {result.logs}", soft_wrap=True)
    console.print(f"whole demo        {result.seconds:.0f} s")
    console.print()
    console.print(
        "Serve this model yourself, from this store, at http://localhost:8000. With a model of your own "
        "leave out --enforce-eager, --max-model-len and --kv-cache-memory-bytes; then vLLM takes most of "
        "the memory (without an accelerator: give it VLLM_CPU_KVCACHE_SPACE, in GiB)."
    )
    console.print()
    console.print(serve_command(result, environment), soft_wrap=True, markup=False, highlight=False)
    console.print()
