"""Providers' batch APIs as a transport: questions are collected, uploaded, looked after and answered hours later, at
half the price. Engine, cache, budget and ledger do not know the difference.
"""

from referee.batch.journal import Journal, Listed
from referee.batch.open import BatchRun, batch_config, check_batch
from referee.batch.status import Board
from referee.batch.transport import BatchTransport

__all__ = ["BatchRun", "BatchTransport", "Board", "Journal", "Listed", "batch_config", "check_batch"]
