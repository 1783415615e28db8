"""`python -m referee.trainers.verl key=value …`: which overrides of a verl command line verl 0.9 would ignore."""

from __future__ import annotations

import sys

from referee.trainers.verl.legacy_keys import OURS, new_spelling


def main(arguments: list[str]) -> int:
    """Say the new spelling of every old key; 1 if there is one."""
    renamed = [(old, new) for old in arguments if (new := new_spelling(old))]
    for old, new in renamed:
        sys.stdout.write(f"{old}\n    verl 0.9 ignores it; now: {new}\n")
    if not renamed:
        sys.stdout.write(f"no old keys. referee's own lines are:\n{OURS}\n")
    return 1 if renamed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
