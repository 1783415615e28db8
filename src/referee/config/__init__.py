"""Settings from TOML, environment or mappings: schema, loading, checks."""

from referee.config.check import key_may_travel
from referee.config.judge_schema import Gates, JudgeConfig
from referee.config.judges import endpoints_of, pool_of
from referee.config.keys import is_variable, looks_like_key
from referee.config.load import anchored, load
from referee.config.schema import (
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
    "anchored",
    "endpoints_of",
    "is_variable",
    "key_may_travel",
    "load",
    "looks_like_key",
    "pool_of",
]
