"""A step of TRL's real GRPOTrainer: with a hand-written asynchronous reward, with ours, and with ours attached.

The model is small, so the reference pass is made as long as the judge. Asleep: the processor is free, as it is while
a GPU computes. Busy: the real pass over and over, so that it fights with the judge for two cores and for the
interpreter's lock.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.common import bodies, gathered, spread, table
from referee import clock
from referee.sim import ProviderSpec, start_server_process
from referee.trainers.rows import to_samples
from referee.trainers.shared import close_all


def load_tiny() -> Any:
    """The tests' small trainer, by path: some packages install a `tests` of their own."""
    path = Path(__file__).parent.parent / "tests" / "trainers" / "trl_tiny.py"
    spec = importlib.util.spec_from_file_location("trl_tiny", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tiny = load_tiny()

PASS = 0.5
"""Seconds of the reference pass, and of the judge."""
BATCH = 16
WAYS = {
    "none": "no judge",
    "hand": "hand-written: asyncio.gather with aiohttp",
    "ours": "reward_func",
    "attached": "reward_func, attached",
}


def nothing(prompts: Any, **_: Any) -> list[float]:
    """A reward that costs nothing; not constant, so that TRL has something to train on."""
    return [float(n % 3) for n in range(len(prompts))]


def hand_written(url: str) -> Callable[..., Any]:
    """What users write: all at once, on the loop TRL runs coroutines on, a new session each step."""

    async def judge(prompts: Any, completions: Any, **_: Any) -> list[float | None]:
        shown = [text.strip() or "(empty)" for text in completions]  # ours would settle an empty one without a call
        scores = await gathered(url, bodies(to_samples(prompts, shown)), 64)
        return [None if score is None else (score - 1) / 9 for score in scores]

    return judge


def stretched(compute: Callable[..., Any], busy: bool, *args: Any, **named: Any) -> Any:
    """A log-prob pass that takes PASS seconds where no gradient is wanted: the reference pass."""
    if tiny.quietly("torch").is_grad_enabled():
        return compute(*args, **named)
    end = clock.monotonic() + PASS
    result = compute(*args, **named)
    while busy and clock.monotonic() < end:
        compute(*args, **named)
    clock.pause(max(0.0, end - clock.monotonic()))
    return result


def timed(call: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    """The same call, which adds what it took to the last number."""

    @functools.wraps(call)
    def run(*args: Any, **named: Any) -> Any:
        began = clock.monotonic()
        try:
            return call(*args, **named)
        finally:
            seconds[-1] += clock.monotonic() - began

    return run


def steps(way: str, busy: bool, url: str, count: int) -> tuple[float, float]:
    """Median seconds of a step, and of what the step stood still for rewards. The first step warms things up."""
    from referee.trainers.trl import attach, reward_func

    class Times(tiny.quietly("transformers").TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            took.append(-clock.monotonic())
            stood.append(0.0)

        def on_step_end(self, *_: Any, **__: Any) -> None:
            took[-1] += clock.monotonic()

    took: list[float] = []
    stood: list[float] = []
    # The random model hardly ever ends an answer by itself, and all of them are to be judged.
    judged = {"judge": {"gates": {"truncated": "off"}}, "cache": {"path": ""}}
    config = {"endpoint": {"url": url, "model": "simulated", "key_env": ""}, **judged}
    funcs = {"none": lambda: nothing, "hand": lambda: hand_written(url)}
    func = funcs.get(way, lambda: reward_func(config))()
    with tempfile.TemporaryDirectory() as folder:
        trainer = tiny.make_trainer(
            Path(folder), [func], steps=count + 1, beta=0.1, per_device_train_batch_size=BATCH, logging_steps=1000
        )
        trainer._get_per_token_logps_and_entropies = functools.partial(
            stretched, trainer._get_per_token_logps_and_entropies, busy
        )
        trainer._calculate_rewards = timed(trainer._calculate_rewards, stood)
        trainer.add_callback(Times())
        with contextlib.redirect_stdout(io.StringIO()):
            if way == "attached":
                func.referee.begin = timed(func.referee.begin, stood)
                with attach(trainer):
                    trainer.train()
                del func.referee.begin
            else:
                trainer.train()
    close_all()
    return statistics.median(took[1:]), statistics.median(stood[1:])


def run(quick: bool) -> dict[str, Any]:
    """Every way, in turns, with the processor free and busy during the pass."""
    tiny.quietly("trl")
    tiny.quietly("transformers").utils.logging.disable_progress_bar()
    rounds, count = (1, 3) if quick else (3, 6)
    found: dict[str, Any] = {"pass_s": PASS, "batch": BATCH, "steps": rounds * count, "rounds": []}
    for busy in (False, True):
        for _ in range(rounds):
            row: dict[str, Any] = {"busy": busy}
            for way in WAYS:
                with start_server_process(ProviderSpec(latency_median=PASS), seed=1) as server:
                    row[way], row[f"{way}_stood"] = steps(way, busy, server.url, count)
            found["rounds"].append(row)
    return found


def hidden(row: dict[str, Any]) -> float:
    """Share hidden of what a step stands still for rewards. The judge is as slow as the pass: all of it can be."""
    return float(1 - row["attached_stood"] / row["ours_stood"])


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    lines = [
        f"{results['batch']} answers a step, beta 0.1, reference pass and judge {results['pass_s']} s each. Medians of "
        f"rounds, {results['steps']} steps in all for each figure, with the least and the most.",
    ]
    for busy, title in ((False, "processor free during the pass, as with a GPU"), (True, "processor busy")):
        rows = [row for row in results["rounds"] if row["busy"] is busy]
        ways = [
            [
                name,
                spread([row[way] for row in rows], ".3f", " s"),
                spread([row[f"{way}_stood"] * 1000 for row in rows], ".0f", " ms"),
            ]
            for way, name in WAYS.items()
        ]
        shares = spread([hidden(row) * 100 for row in rows], ".1f", " %")
        lines += ["", f"With the {title}: {shares} of what can be hidden is hidden.", ""]
        lines += table([title, "step", "stands still for rewards"], ways)
    return lines


if __name__ == "__main__":
    print("\n".join(report(run(quick=True))))
