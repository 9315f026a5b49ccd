"""The measurements run: a few repetitions of the smallest entry, with every peer."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_is_measured_and_written(tmp_path: Path) -> None:
    """`python -m bench micro --quick` prints targets and verdicts and writes JSON, a picture and a page."""
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "bench", "micro", "--quick", "--size", "0.5"),
            *("--only", "get", "--only", "put", "--only", "promise", "--only", "lookups"),
            *("--folder", str(tmp_path)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == ran.returncode, ran.stderr
    document = json.loads((tmp_path / "micro.json").read_text())
    rows = {(row["operation"], row["peer"]): row for row in document["rows"]}
    assert {"-", "met", "missed"} >= {row["verdict"] for row in rows.values()}
    assert {"XXH3 pass", "LMCache get (memory)", "ECExampleConnector load", "torch.clone"} <= {
        peer for _, peer in rows
    }
    assert rows["get, page cache warm", "XXH3 pass"]["measured"] > 0
    assert "<= 60 us" == rows["get, page cache warm, 20 in a row", ""]["target"]
    assert "verdict" in ran.stdout
    assert b"\x89PNG" == (tmp_path / "micro.png").read_bytes()[:4]
    page = (tmp_path / "micro.html").read_text()
    assert "get, page cache warm" in page
    assert "data:image/png;base64," in page
    assert [] == [path.name for path in tmp_path.iterdir() if path.is_dir()]
