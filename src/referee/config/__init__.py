"""What a user may write (TOML, environment, mappings), and nothing about what is done with it."""

from referee.config.check import key_may_travel
from referee.config.load import load
from referee.config.schema import (
    CacheConfig,
    Config,
    EndpointConfig,
    Gates,
    JudgeConfig,
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
    "key_may_travel",
    "load",
]
