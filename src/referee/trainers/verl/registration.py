"""Entering our batch manager in verl's registry, whichever of the two is imported first."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

NAME = "length_penalty"
HOME = "verl.workers.reward_manager"


def enter_registry() -> None:
    """Now, if verl's registry is loaded; else when it has been loaded. Never imports verl."""
    module = sys.modules.get(HOME)
    if module is not None and hasattr(module, "register"):
        _enter(module)
    elif not any(isinstance(finder, _Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch())


def _enter(module: Any) -> None:
    from referee.trainers.verl.batch_manager import LengthPenaltyRewardManager

    module.register(NAME)(LengthPenaltyRewardManager)
    base = getattr(sys.modules.get(f"{HOME}.abstract"), "AbstractRewardManager", None)
    if base is not None:
        base.register(LengthPenaltyRewardManager)


class _Watch(importlib.abc.MetaPathFinder):
    """Notices the import of verl's registry, lets the usual finders do it, and enters our class afterwards."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The usual spec with our loader around its own, for this one module."""
        if fullname != HOME:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        spec.loader = _ThenEnter(spec.loader)
        return spec


class _ThenEnter(importlib.abc.Loader):
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """As the usual loader does."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """As the usual loader does; then our entry, and the watch ends."""
        self._loader.exec_module(module)
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Watch)]
        if hasattr(module, "register"):  # verl before 0.4.1 has no registry
            _enter(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
