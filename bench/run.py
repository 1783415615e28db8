"""Run the benchmarks and write what was measured: `python -m bench.run [--quick] [name…]`."""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import finding_the_limit, growth, importing, overhead
from referee import clock

HERE = Path(__file__).parent
BENCHES: dict[str, tuple[str, Callable[[bool], Any], Callable[[Any], list[str]]]] = {
    "finding_the_limit": ("Finding the provider's limit", finding_the_limit.run, finding_the_limit.report),
    "overhead": ("Cost of the pipeline", overhead.run, overhead.report),
    "growth": ("Growth", growth.run, growth.report),
    "importing": ("Import", importing.run, importing.report),
}


def machine() -> str:
    """What was measured on."""
    try:
        cores = subprocess.run(["nproc"], capture_output=True, text=True, check=True).stdout.strip()
    except OSError:
        cores = "?"
    model = next((x.split(":")[1].strip() for x in _cpuinfo() if x.startswith("model name")), platform.processor())
    return f"{cores} cores ({model}), Linux, Python {platform.python_version()}; shared, so trust ratios and CPU time."


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def main() -> None:
    """Run what is named (default: all), print it, and unless quick write RESULTS.md and results.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(BENCHES))
    parser.add_argument("--quick", action="store_true", help="smaller sizes, nothing written")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(BENCHES))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    path = HERE / "results.json"
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() and not options.quick else {}
    for name in options.names or BENCHES:
        started = clock.monotonic()
        title, run, report = BENCHES[name]
        results[name] = json.loads(json.dumps(run(options.quick)))
        print(f"## {title}\n")
        print("\n".join(report(results[name])))
        print(f"\n({clock.monotonic() - started:.0f} s)\n", flush=True)
    if options.quick:
        return
    results["machine"] = machine()
    path.write_text(json.dumps(results, indent=1) + "\n")
    lines = ["# Measured", "", f"On {results['machine']} Made by `make bench`; raw figures in results.json.", ""]
    for name, (title, _, report) in BENCHES.items():
        if name in results:
            lines += [f"## {title}", "", *report(results[name]), "", f"`python -m bench.run {name}`", ""]
    (HERE / "RESULTS.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
