"""`eccache demo`, as the README tells a newcomer to run it."""

import json
import subprocess
import sys
from pathlib import Path


def test_the_demo_answers_from_the_cache_after_a_restart(tmp_path: Path) -> None:
    """Both answers are the same, both encoder outputs are hits, and the first token comes 4 times sooner."""
    ran = subprocess.run(
        [sys.executable, "-m", "eccache", "demo", "--json", "--path", str(tmp_path / "demo")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == ran.returncode, ran.stderr
    result = json.loads(ran.stdout)
    assert result["answers_equal"]
    assert 2 == result["hits"]
    assert 0.25 * result["cold_ttft_seconds"] >= result["warm_ttft_seconds"]
    assert 3 == len(list(Path(result["store"]).rglob("*@1@0@*@bfloat16.safetensors")))
    assert "asking about the video" in ran.stderr
