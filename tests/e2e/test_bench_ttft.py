"""`eccache bench ttft` on a real server: what the encoder took cold is saved after the restart."""

import json
import subprocess
import sys
from pathlib import Path

from eccache.app.demo import media
from eccache.app.demo.server import SMALL_MODEL_ARGUMENTS


def test_a_users_own_model_is_measured_cold_and_after_a_restart(
    tiny_model: Path, demo_media: media.DemoMedia, tmp_path: Path
) -> None:
    """The encoder runs cold and not after the restart; answers are equal; table, JSON and plot are there."""
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "eccache", "bench", "ttft", "--json", "--path", str(tmp_path)),
            *("--model", str(tiny_model), "--num-frames", "4"),
            *("--media", str(demo_media.video), "--media", str(demo_media.photo_jpeg)),
            *("--", *SMALL_MODEL_ARGUMENTS),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == ran.returncode, ran.stderr
    cases = json.loads(ran.stdout)["cases"]
    assert ["photographs.mp4, 4 frames", "coffee.jpg"] == [case["case"] for case in cases]
    for case in cases:
        assert case["answers_equal"]
        assert 0 < case["encoder_seconds"]
        assert 0 == case["warm_encoder_seconds"]
        assert 0 < case["load_seconds"] < case["encoder_seconds"]
    assert json.loads((tmp_path / "ttft.json").read_text())["cases"] == cases
    assert b"\x89PNG" == (tmp_path / "ttft.png").read_bytes()[:4]
    assert "starting it again" in ran.stderr
