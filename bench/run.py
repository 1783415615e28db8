"""Run the benchmarks and write what was measured: `python -m bench.run [--quick | --render] [name…]`."""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import subprocess
import traceback
from pathlib import Path
from typing import Any

from referee import clock

HERE = Path(__file__).parent
GROUPS: dict[str, dict[str, str]] = {
    "The trainer's time": {
        "documents": "A hand-written reward manager and referee",
        "waiting": "What a training step waits for its judge",
        "interpreter": "What judging takes from the trainer's interpreter",
    },
    "The provider's limit": {
        "limits": "Finding the limit of many kinds of provider",
        "finding_the_limit": "Finding the limit over real HTTP",
        "tail": "Slow answers and hedging",
    },
    "Cost": {
        "client_cost": "Cost of a judged sample, beside other clients",
        "overhead": "Cost of the pipeline",
        "processes": "Worker processes",
        "ray_runtime": "Ray",
        "service": "The HTTP service",
        "importing": "Import",
        "rubrics": "Rubrics: tokens, and what a judge's errors do",
        "prefixes": "Prompt caches of providers: what scheduling for them saves",
        "groups": "Groups: the right order for each call, and what a liking for the first place does",
    },
    "Cache and size": {
        "cached": "The cache and repeated rollouts",
        "redis_cache": "The cache in Redis",
        "growth": "Growth",
    },
    "Trainers": {
        "verl_batch": "verl's reward managers",
        "trl_step": "A step of TRL's GRPOTrainer",
    },
    "Trust": {
        "reliability": "Deadlines and outages",
        "teams": "Ten teams on one service",
        "rolling": "A rolling restart of two replicas",
        "coverage": "Intervals and the truth",
        "agreement": "Agreement per dollar: juries, repeats, cascades",
        "audit": "The audit: alarms before a judge is hacked, and none otherwise",
    },
}
PICTURES = {"waiting": "bench-waiting", "limits": "bench-limits", "client_cost": "bench-cost"}
"""What `python -m bench.plots` draws of them."""
SMALL = "(Small sizes, as in a quick run.)"
"""Stands under a table whose figures are of a quick run. It stays as long as the figures do."""
TITLES = {name: title for group in GROUPS.values() for name, title in group.items()}
LONG = frozenset(
    {
        "finding_the_limit",
        "interpreter",
        "processes",
        "service",
        "ray_runtime",
        "verl_batch",
        "trl_step",
        "rolling",
        "teams",
    }
)
"""Not part of `--quick` unless named: together they would take longer than a quick run may."""


def known() -> list[str]:
    """The benchmarks that are there, and whole. Read, not imported: some need what only a trainer's place has."""
    files = {name: HERE / f"{name}.py" for name in TITLES}
    texts = {name: path.read_text() for name, path in files.items() if path.exists()}
    return [name for name, text in texts.items() if "\ndef run(" in text and "\ndef report(" in text]


def measure(name: str, quick: bool) -> Any:
    """One benchmark's results, or why there are none."""
    try:
        module = importlib.import_module(f"bench.{name}")
        return json.loads(json.dumps(module.run(quick)))
    except ImportError as missing:
        return {"skipped": f"it needs what is not installed here ({missing})"}
    except Exception as error:
        traceback.print_exc()
        return {"skipped": f"it failed here: {type(error).__name__}: {str(error)[:200]}"}


def skipped(results: Any) -> bool:
    """Whether these are no results, only a reason."""
    return isinstance(results, dict) and "skipped" in results


def lines_of(name: str, results: Any) -> list[str]:
    """A benchmark's report, or why there is none."""
    if skipped(results):
        return [f"Not measured: {results['skipped']}."]
    lines: list[str] = importlib.import_module(f"bench.{name}").report(results)
    return lines


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


def write(results: dict[str, Any], name: str, found: Any, lines: list[str]) -> None:
    """Keep the raw rows, and the tables made from them.

    Each table is kept as it was written: some benchmarks run, and are read, only where a trainer is installed.
    """
    before = results.get(name)
    if before is None or not (skipped(found) and not skipped(before)):
        results[name] = found
        results.setdefault("tables", {})[name] = lines
    results["machine"] = machine()
    save(results)


def render(results: dict[str, Any], names: list[str]) -> None:
    """Make tables anew from figures that are there already; one that cannot be made here stays as it was written."""
    for name in names:
        if name in results and not skipped(results[name]):
            try:
                lines, before = lines_of(name, results[name]), results["tables"].get(name, [])
                small = [SMALL] if SMALL in before and SMALL not in lines else []
                results["tables"][name] = [*lines, *([""] if small else []), *small]
            except Exception as error:  # not installed here, or figures of an older form of the benchmark
                print(f"{name}: left as it was written ({type(error).__name__}: {error})")
    save(results)


def save(results: dict[str, Any]) -> None:
    """Write the raw rows, and the page of all tables."""
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (HERE / "RESULTS.md").write_text(page_of(results))


def page_of(results: dict[str, Any]) -> str:
    """The page, made of the tables alone. `notes` in the rows are what was measured by hand, as lines."""
    page = ["# Measured", "", f"On {results['machine']} Made by `make bench`; raw figures in results.json.", ""]
    for group, titles in GROUPS.items():
        shown = {key: title for key, title in titles.items() if key in results["tables"]}
        if shown:
            page += [f"## {group}", ""]
        for key, title in shown.items():
            page += [f"### {title}", ""]
            if key in PICTURES and not skipped(results[key]):
                page += [f"![{title}](../docs/images/{PICTURES[key]}.svg)", ""]
            page += [*results["tables"][key], "", f"`python -m bench.run {key}`", ""]
            page += [line for note in results.get("notes", {}).get(key, ()) for line in (*note, "")]
    return "\n".join(page)


def main() -> None:
    """Run what is named (default: all), print it, and unless quick write RESULTS.md and results.json."""
    names = known()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="smaller sizes, nothing written, the long ones left out")
    parser.add_argument(
        "--render", action="store_true", help="measure nothing: write the tables anew from results.json"
    )
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(names))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(names)}")
    chosen = options.names or [name for name in names if not (options.quick and name in LONG)]
    path = HERE / "results.json"
    if options.render:
        render(json.loads(path.read_text()), options.names or names)
        return
    for name in chosen:
        started = clock.monotonic()
        found = measure(name, options.quick)
        print(f"## {TITLES[name]}\n")
        lines = lines_of(name, found)
        print("\n".join(lines))
        print(f"\n({clock.monotonic() - started:.0f} s)\n", flush=True)
        if not options.quick:
            # Read again each time, so that two runs side by side do not undo each other.
            results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
            write(results, name, found, lines)


if __name__ == "__main__":
    main()
