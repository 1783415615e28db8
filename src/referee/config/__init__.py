"""Settings from TOML, environment or mappings: schema, loading, checks."""

from referee.config.check import key_may_travel
from referee.config.judge_schema import Gates, JudgeConfig, Until
from referee.config.judges import all_judges, asking_judges, change_judges, compares, endpoints_of, pool_of
from referee.config.keys import is_variable, looks_like_key
from referee.config.load import anchored, load
from referee.config.members import MADE_OF_OTHERS, quorum_of
from referee.config.schema import (
    BatchConfig,
    CacheConfig,
    Config,
    EndpointConfig,
    LedgerConfig,
    LengthConfig,
    LimitsConfig,
    MissingConfig,
    OtelConfig,
    RedisConfig,
    Secret,
    ShapingConfig,
)

__all__ = [
    "MADE_OF_OTHERS",
    "BatchConfig",
    "CacheConfig",
    "Config",
    "EndpointConfig",
    "Gates",
    "JudgeConfig",
    "LedgerConfig",
    "LengthConfig",
    "LimitsConfig",
    "MissingConfig",
    "OtelConfig",
    "RedisConfig",
    "Secret",
    "ShapingConfig",
    "Until",
    "all_judges",
    "anchored",
    "asking_judges",
    "change_judges",
    "compares",
    "endpoints_of",
    "is_variable",
    "key_may_travel",
    "load",
    "looks_like_key",
    "pool_of",
    "quorum_of",
]
