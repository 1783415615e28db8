"""One of two ranks of a real TRL run in which every second group is spread over both; rank 0 writes what was given."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from trl_tiny import logged, make_trainer  # beside this script: another package is named tests

from referee.trainers.trl import attach, reward_func


def main(folder: Path) -> None:
    """Three groups of four answers a step, six rows a rank."""
    func = reward_func(folder / "referee.toml")
    trainer = make_trainer(folder, [func], per_device_train_batch_size=6)
    with attach(trainer):
        trainer.train()
    if trainer.accelerator.is_main_process:
        (folder / "given.json").write_text(json.dumps(logged(trainer)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
