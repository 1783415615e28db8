"""Ledger to data to one self-contained page."""

from referee.report.data import Gathering, build
from referee.report.shape import Report

__all__ = ["Gathering", "Report", "build"]
