"""Whether a trainer's rows hold what the judges need, and which of their columns no judge sees.

Looked at with the first rows, before the first request: a column that is missing everywhere would cost a run its
rewards, and one that was meant for the judge should not be found unread after training.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from referee.config import Config, all_judges, compares, lacks_criteria
from referee.errors import ConfigError
from referee.rollouts.messages import unread_fields
from referee.rollouts.rubric import SOURCES
from referee.scoring.build import columns_shown, read_template, rubric_polarity
from referee.trainers.rows import MEDIA, REFERENCES, TOOLS

log = logging.getLogger("referee.trainers")

REFERENCE = re.compile(r"{{\s*reference\s*}}")
MEANT = re.compile(r"rubric|criteri|checklist|guideline|grading|reference|expected|gold", re.IGNORECASE)
"""Names of columns that were probably meant for a judge: unread ones are a warning."""
BOOKKEEPING = frozenset(
    {"prompt", "prompts", "completion", "completions", "completion_ids", "messages", "response", "responses", "query"}
    | {"id", "idx", "index", "uid", "uuid", "name", "data_source", "source", "split", "ability", "dataset", "channel"}
    # TRL
    | {"trainer_state", "log_extra", "log_metric", "environment", "environments", "chat_template_kwargs", "env_mask"}
    # verl
    | {"raw_prompt", "raw_prompt_ids", "reward_model", "extra_info", "tools_kwargs", "interaction_kwargs", "question"}
    | {"need_tools_kwargs", "tool_selection", "tool_extra_fields", "__num_turns__", "num_turns", "agent_name"}
    | {"prompt_len", "response_len", "session_id", "global_steps", "min_global_steps", "max_global_steps", "extras"}
    | {"turn_scores", "tool_rewards", "reward_scores", "rollout_reward_scores", "multi_modal_data", "full_prompts"}
    | {"multi_modal_inputs", "mm_processor_kwargs", "request_id", "is_correct", "priority", "partial_rollout"}
    # slime
    | {"rm_type", "round_number", "custom_rm_path", "reward_key", "referee_unscored"}
    # ms-swift
    | {"prompt_id", "finish_reason", "is_truncated", "rollout_infos", "response_token_ids", "objects", "loss_scale"}
    | {"rejected_response", "rejected_messages", "teacher_prompt", "margin", "add_eos"}
    # SkyRL
    | {"env_class", "env_config", "reward_spec", "max_turns", "method", "style"}
    # NeMo-Gym
    | {"responses_create_params", "reward", "agent_ref", "instance_config", "metadata", "verifier_metadata"}
    # verifiers
    | {"description", "system_prompt", "workdir", "agent_user", "skills", "network_allow", "network_block", "timeout"}
    | {"artifacts", "artifact_max_bytes", "resources"}
    # fields of messages
    | {"trainable", "loss", "provider_state"}
)
"""Columns that frameworks add, or that say nothing of an answer. Never named."""


class RowCheck:
    """What one configuration needs of rows; asked for until it was found once."""

    def __init__(self, config: Config) -> None:
        self.shown: tuple[str, ...] = columns_shown(config)
        """Columns that the judges' templates show."""
        self.polarity = rubric_polarity(config)
        """How rubrics are read; None: no judge has any."""
        templates = [read_template(judge) or "" for judge in all_judges(config.known_judges)]
        compared = any(map(compares, all_judges(config.known_judges)))
        self._lacks_reference = compared or any(REFERENCE.search(template) for template in templates)
        self._lacks_column = bool(self.shown)
        self._lacks_rubric = any(map(lacks_criteria, all_judges(config.known_judges)))
        self._named = False

    def check(
        self, columns: Collection[str], reference: bool, where: str, texts: Iterable[tuple[str, Any]] = ()
    ) -> None:
        """Refuse judges that could score none of these rows; say once which columns no judge sees.

        `columns`: what the rows have. `reference`: whether there is a known answer, or a place for it; `where`: what to
        add, to what. `texts`: names and values of prompts and responses, whose unread fields are named too.
        """
        named = ", ".join(sorted(str(name) for name in columns if name not in BOOKKEEPING and name != TOOLS)) or "none"
        held = f"(they have: {named}): no answer could be scored"
        if self._lacks_reference and not reference:
            raise ConfigError(
                "the judge compares with a known answer (judge.kind, or {{reference}} in judge.prompt_file), and these "
                f"rows have none {held}. Give {where}; or choose a judge that needs no reference.",
                setting="judge.kind",
            )
        missing = [name for name in self.shown if name not in columns] if self._lacks_column else []
        if missing:
            raise ConfigError(
                f"the judge's template shows {{{{columns.{missing[0]}}}}}, and these rows have no such column {held}. "
                "Add it to the data, or take it out of judge.prompt_file.",
                setting="judge.prompt_file",
            )
        if self._lacks_rubric and SOURCES.isdisjoint(columns):
            raise ConfigError(
                'judge.kind = "rubric" goes by criteria, and there are none: no [[judge.criterion]] or '
                f"judge.rubric_file, and these rows have no rubric {held}. Give each row a column `rubric`, or the "
                "judge criteria of its own.",
                setting="judge.kind",
            )
        self._lacks_reference = self._lacks_column = self._lacks_rubric = False
        if not self._named:
            self._named = True
            self._name_unread(columns, texts)

    def _name_unread(self, columns: Iterable[str], texts: Iterable[tuple[str, Any]]) -> None:
        known = {*BOOKKEEPING, *REFERENCES, *MEDIA, TOOLS, *self.shown, *(SOURCES if self.polarity else ())}
        found = [str(name) for name in columns if name not in known and not str(name).startswith("_")]
        for where, text in texts:
            found += [f"{where}[].{name}" for name in sorted(unread_fields(text)) if name not in known]
        unread = [name for name in dict.fromkeys(found) if name.isprintable()]
        meant = [name for name in unread if MEANT.search(name)]
        reads = 'kind = "rubric" reads criteria from `rubric`, kind = "reference" a known answer, '
        _say(logging.WARNING, meant, reads)
        _say(logging.INFO, [name for name in unread if name not in meant])


def _say(level: int, names: Sequence[str], reads: str = "") -> None:
    if names:
        log.log(
            level,
            "not read: %s. No judge sees them: %sa template of your own shows a column with {{columns.name}}",
            ", ".join(names),
            reads,
        )
