"""Settings from TOML, environment or mappings: schema, loading, checks."""

from referee.config.apis import DECISION
from referee.config.audit_schema import AuditConfig
from referee.config.check import key_may_travel
from referee.config.judge_schema import Gates, JudgeConfig, Until
from referee.config.judges import (
    all_judges,
    asking_judges,
    change_all,
    change_judges,
    compares,
    endpoints_of,
    lacks_criteria,
    pool_of,
)
from referee.config.keys import is_variable, looks_like_key
from referee.config.load import anchored, load
from referee.config.members import MADE_OF_OTHERS, quorum_of
from referee.config.prices import find_price, price_table
from referee.config.providers import LOCAL, PROVIDERS, provider_name, provider_of, runs_here
from referee.config.resolve import price_words
from referee.config.schema import (
    BatchConfig,
    CacheConfig,
    Config,
    EndpointConfig,
    LedgerConfig,
    LengthConfig,
    LimitsConfig,
    LocalConfig,
    MissingConfig,
    OtelConfig,
    RedisConfig,
    Secret,
    ServeConfig,
    ShapingConfig,
)
from referee.config.team_schema import TeamConfig
from referee.config.teams import chosen_judges, counts, team_of

__all__ = [
    "DECISION",
    "LOCAL",
    "MADE_OF_OTHERS",
    "PROVIDERS",
    "AuditConfig",
    "BatchConfig",
    "CacheConfig",
    "Config",
    "EndpointConfig",
    "Gates",
    "JudgeConfig",
    "LedgerConfig",
    "LengthConfig",
    "LimitsConfig",
    "LocalConfig",
    "MissingConfig",
    "OtelConfig",
    "RedisConfig",
    "Secret",
    "ServeConfig",
    "ShapingConfig",
    "TeamConfig",
    "Until",
    "all_judges",
    "anchored",
    "asking_judges",
    "change_all",
    "change_judges",
    "chosen_judges",
    "compares",
    "counts",
    "endpoints_of",
    "find_price",
    "is_variable",
    "key_may_travel",
    "lacks_criteria",
    "load",
    "looks_like_key",
    "pool_of",
    "price_table",
    "price_words",
    "provider_name",
    "provider_of",
    "quorum_of",
    "runs_here",
    "team_of",
]
