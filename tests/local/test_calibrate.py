"""The embedded model, calibrated on the demo's rollouts: a weak judge, and the page says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from referee.local import demo_rollouts
from referee.local.model import missing

pytestmark = [
    pytest.mark.local,
    pytest.mark.skipif(bool(missing()), reason=missing() or "installed"),
    pytest.mark.timeout(300),
]


def test_the_embedded_model_is_measured_as_what_it_is(tmp_path: Path) -> None:
    """Better than chance at putting answers in order, with an interval that does not hide how few rows there are."""
    rows = [
        {"prompt": sample.prompt, "response": sample.response, "reference": sample.reference, "label": label == "good"}
        for sample, label in demo_rollouts()
        if label in ("good", "bad")
    ]
    labels = tmp_path / "labels.jsonl"
    labels.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = subprocess.run(
        [sys.executable, "-m", "referee.cli.main", "calibrate", "labels.jsonl", "--json", "-o", "page.html"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    [judge] = json.loads(done.stdout)["judges"]
    assert judge["n"] >= 0.8 * len(rows)
    assert judge["roc_auc"] > 0.7
    low, high = judge["kappa_interval"]
    assert high - low > 0.1
    assert "<!doctype html>" in (tmp_path / "page.html").read_text()[:100].lower()
