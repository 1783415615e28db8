"""Makes the pictures of the report for the documents: `python -m docs.screenshots`. Needs chromium and playwright.

The runs behind them are real in all but their model: steps of 64 made-up rollouts, judged over HTTP by the simulated
provider, which has a capacity, latencies and faults, and whose judge likes long answers more than it should. The live
page is photographed while a run goes on. The run of the audit's picture is made by `docs.hacked_run`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.hacked_run import hacked_run

from referee import Referee, Sample, clock
from referee.cli.report import make_index, make_report
from referee.config import load
from referee.report.live import live_files
from referee.report.live_server import LiveServer
from referee.report.watch import Watch
from referee.sim import Provider, ProviderSpec, serve_http
from referee.sim.chat import Question
from referee.sim.judge import Answer, write

IMAGES = Path(__file__).absolute().parent / "images"
STEPS, GROUPS, SIBLINGS = 8, 8, 8
STEP_WORK = 3.5
"""Seconds the pretended trainer computes per step while the judge works."""
OTHERS = {"penalty-0.9": 0.9, "no-penalty": 0.0}
"""Shorter runs beside it, and their length penalty."""

SPEC = ProviderSpec(
    latency_median=0.5,
    latency_sigma=0.5,
    tail_share=0.02,
    tail_factor=4,
    capacity=16,
    retry_after_s=0.3,
    faults={
        "refusal": 0.02,
        "http_503": 0.03,
        "out_of_range": 0.015,
        "content_filter": 0.01,
        "reset": 0.01,
        "length": 0.01,
    },
)

QUESTIONS = {
    "tides": ("Why are there two high tides a day?", "The Moon pulls harder on the near side of the Earth"),
    "primes": ("Show that there are infinitely many primes.", "Suppose there were only finitely many"),
    "bread": ("Why does bread dough rise?", "Yeast turns sugar into carbon dioxide"),
    "cache": ("When is a cache a bad idea?", "When stale data costs more than slow data"),
    "bridge": ("Why do suspension bridges sag in the middle?", "The cable takes the shape its load gives it"),
    "sort": ("Why can no comparison sort beat n log n?", "A decision tree with n! leaves has depth n log n"),
    "sky": ("Why is the sky blue?", "Air scatters short waves more than long ones"),
    "loan": ("What is compound interest?", "Interest that earns interest itself"),
}
REASONS = (
    "That is the heart of the matter.",
    "This follows step by step from what was said before.",
    "An example makes it plain.",
    "The same holds on the other side, for the same cause.",
    "It can be checked by anyone with a pencil.",
)
PADDING = (
    "It is worth noting that this is an interesting question.",
    "As mentioned above, there are many ways to look at it.",
    "In conclusion, one may say that the topic has several sides.",
    "To put it another way, the same can be said in other words.",
)


class LengthLover:
    """A judge with a known bias: reasons count, but words count too."""

    def answer(self, question: Question) -> Answer:
        """An integer on the scale, with a sentence."""
        text = question.candidate
        merits = sum(reason in text for reason in REASONS) + 2 * ("because" in text)
        words = len(text.split())
        points = 1.2 * merits + words / 22 + len(text) % 7 / 4 - 1
        score = max(question.low, min(question.high, question.low + round(points)))
        said = f"{merits} points of substance; {'thorough' if words > 70 else 'brief'}."
        return Answer(write(question, score, said), score)


def rollout(rng: random.Random, name: str, step: int, sibling: int) -> Sample:
    """An answer as a policy writes it that learns that length pays: padding grows with the steps."""
    prompt, core = QUESTIONS[name]
    collapsed = name == "sky" and step > 5
    if collapsed or rng.random() < 0.06:  # the policy repeats itself, word for word
        rng = random.Random(name)
    lines = [f"{core}." if rng.random() < 0.85 else "It is so because it has always been so."]
    lines += rng.sample(REASONS, rng.randint(0, min(5, 2 + step // 2)))
    lines += [rng.choice(PADDING) for _ in range(rng.randint(0, 2 + step))]
    if rng.random() < 0.05 - 0.004 * step:
        lines = [core, core]
    right = rng.random() < 0.45 + 0.05 * step
    return Sample(
        prompt=prompt,
        response="" if rng.random() < 0.015 else " ".join(lines),
        id=f"{name}-{step}-{sibling}",
        group=f"{name}-{step}",
        rule_score=0.5 * right,
        truncated=rng.random() < 0.02,
        step=step,
    )


@contextlib.contextmanager
def judge() -> Iterator[str]:
    """The simulated provider with our judge on a thread of its own; its URL."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(serve_http(Provider(SPEC, 7, LengthLover())), loop).result(30)
    try:
        yield server.url
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


def demo_run(folder: Path, steps: int = STEPS, work: float = STEP_WORK, penalty: float = 0.3) -> None:
    """Train on nothing for a while, and leave a ledger in `folder`."""
    rng = random.Random(4 + round(10 * penalty))
    with judge() as url:
        config = load(
            {
                "endpoint": [
                    {"url": url, "model": "judge-sim", "name": "sim", "key_env": "", "price_in": 0.15, "price_out": 0.6}
                ],
                "cache": {"path": ""},
                "limits": {"deadline": 60.0},
                "judge": {"ask_again": 0},
                "shaping": {"length": {"enable": True, "penalty_scale": penalty}},
                "ledger": {"dir": str(folder)},
            }
        )
        with Referee(config) as referee:
            referee.expect(steps * GROUPS * SIBLINGS, steps)
            for step in range(1, steps + 1):
                names = list(QUESTIONS)[:GROUPS]
                samples = [rollout(rng, name, step, sibling) for name in names for sibling in range(SIBLINGS)]
                ticket = referee.submit(samples)
                clock.pause(work)
                ticket.result(timeout=120)
                clock.pause(work / 4)


PICTURES = (
    # file, width, height, colours, scale, what is on it
    ("report.png", 1280, 900, "light", 1, "top"),
    ("report-dark.png", 1280, 900, "dark", 1, "top"),
    ("report-samples.png", 1280, 720, "light", 1, "samples"),
    ("report-sample.png", 1280, 860, "light", 1, "sample"),
    ("report-group.png", 1280, 760, "dark", 1, "group"),
    ("report-phone.png", 390, 844, "light", 1, "top"),
)


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A browser."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or "/usr/bin/chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def take_live(run: Path, folder: Path) -> None:
    """Photograph the live page when the third step of a run is being judged."""
    with LiveServer(live_files(Watch(run))) as server, chromium() as browser:
        page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        page.goto(server.url)
        page.wait_for_selector(r"#tiles .tile >> text=/3 of \d+ steps/", timeout=120_000)
        page.wait_for_selector("#panel-scores .main-svg >> nth=0")
        page.screenshot(path=folder / "watch-page.png")


def take_index(page_file: Path, folder: Path) -> None:
    """Photograph the index with two runs side by side."""
    with chromium() as browser:
        page = browser.new_context(viewport={"width": 1280, "height": 1000}).new_page()
        page.goto(page_file.absolute().as_uri())
        page.wait_for_selector("body[data-charts]:not([data-busy])", state="attached")
        for name in ("penalty-0.3", *OTHERS)[:2]:
            page.click(f"tr[data-run='{name}'] input")
        page.wait_for_selector("body[data-charts='drawn']", state="attached")
        page.screenshot(path=folder / "report-index.png", full_page=True)


def take_audit(page_file: Path, folder: Path) -> None:
    """Photograph the alarms and what is behind them."""
    with chromium() as browser:
        page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        page.goto(page_file.absolute().as_uri())
        page.wait_for_selector("body[data-charts='drawn']:not([data-busy])", state="attached")
        boxes = [page.locator(f"#panel-{name}").bounding_box() for name in ("audit", "audit-asked")]
        top, bottom = boxes[0]["y"] - 14, boxes[1]["y"] + boxes[1]["height"] + 14
        clip = {"x": 0, "y": top, "width": 1280, "height": bottom - top}
        page.screenshot(path=folder / "report-audit.png", clip=clip, full_page=True)


def take(page_file: Path, folder: Path) -> None:
    """Photograph a report page in light and dark, on a laptop and on a phone."""
    with chromium() as browser:
        for name, width, height, colours, scale, what in PICTURES:
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=colours, device_scale_factor=scale
            )
            page = context.new_page()
            page.goto(page_file.absolute().as_uri())
            page.wait_for_selector("body[data-charts='drawn']:not([data-busy])", state="attached")
            if what == "samples":
                page.fill("#query", "worth noting")
                page.select_option("#sort", "value")
                page.select_option("#direction", "down")
                page.wait_for_selector("body:not([data-busy])", state="attached")
                page.evaluate("document.getElementById('samples').scrollIntoView()")
            if what in ("sample", "group"):
                page.fill("#group", "primes-6")
                page.wait_for_selector("body:not([data-busy])", state="attached")
                page.click("#list .row >> nth=0")
                page.wait_for_selector("#detail[open]:not([data-busy])")
            if what == "group":
                page.click("#detail .compare")
                page.wait_for_selector("#detail:not([data-busy]) .siblings")
            page.screenshot(path=folder / name)
            context.close()


def main() -> None:
    """Run, report, photograph."""
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):  # pages show where their runs are
        runs, page = Path("runs"), Path("report.html")
        IMAGES.mkdir(exist_ok=True)
        demo_run(runs / "penalty-0.3")
        for name, penalty in OTHERS.items():
            run = threading.Thread(target=demo_run, args=(runs / name, 6, 1.5, penalty))
            run.start()
            if penalty:
                take_live(runs / name, IMAGES)
            run.join()
        print(make_report(runs / "penalty-0.3", page, "referee report: eight steps on the simulated provider"))  # noqa: T201
        take(page, IMAGES)
        make_report(runs / "penalty-0.3", page.with_name("index-penalty-0.3.html"))
        print(make_index(runs, page.with_name("index.html"), "referee: three runs on the simulated provider", 0.0))  # noqa: T201
        take_index(page.with_name("index.html"), IMAGES)
        hacked_run(Path("hacked"))
        make_report(Path("hacked"), page.with_name("hacked.html"))
        take_audit(page.with_name("hacked.html"), IMAGES)
    for name in (*(name for name, *_ in PICTURES), "watch-page.png", "report-index.png", "report-audit.png"):
        print(f"{name}: {(IMAGES / name).stat().st_size / 1000:.0f} kB")  # noqa: T201


if __name__ == "__main__":
    main()
