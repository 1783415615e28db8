"""Error labels of providers (error.code, error.type, error.status), lower case, by meaning. Data only."""

from __future__ import annotations

QUOTA = frozenset(
    {
        "accountoverdueerror",
        "arrearage",
        "billing_error",
        "billing_hard_limit_reached",
        "billing_not_active",
        "budget_exceeded",
        "contract_spend_limit_reached",
        "credit_balance_exhausted",
        "enforced_spend_limit_reached",
        "exceeded_current_quota_error",
        "insufficient_balance",
        "insufficient_credits",
        "insufficient_quota",
        "insufficient_user_quota",
        "linked_organization_billing_unavailable",
        "linked_organization_spend_limit_reached",
        "organization_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "payment_required",
        "project_spend_limit_exceeded",
        "terminal_quota_exhausted",
    }
)
"""The account has no credit left, or its owner set a limit that is reached."""

AUTH = frozenset(
    {
        "account_deactivated",
        "api_key_invalid",
        "authentication_error",
        "incorrect_api_key",
        "invalid_api_key",
        "invalid_authentication_error",
        "invalid_iam_token",
        "invalid_organization",
        "missing_api_key",
        "unauthorized",
    }
)
"""The key is missing, wrong or switched off."""

TOO_LONG = frozenset(
    {
        "context_length_exceeded",
        "context_window_exceeded",
        "exceed_context_size_error",
        "payload_too_large",
        "prompt_too_long",
        "request_too_large",
        "string_above_max_length",
    }
)
"""The request does not fit."""

POLICY = frozenset(
    {
        "bio_policy",
        "content_filter",
        "content_moderation",
        "content_policy_violation",
        "data_inspection_failed",
        "datainspectionfailed",
        "image_content_policy_violation",
        "invalid_prompt",
        "misalignment_policy_violation",
        "moderation_blocked",
        "prompt_blocked",
        "responsibleaipolicyviolation",
        "sensitive_content",
    }
)
"""A content filter turned the request away."""

THROTTLED = frozenset(
    {
        "ramp_limit_exceeded",
        "rate_limit_error",
        "rate_limit_exceeded",
        "rate_limit_reached_error",
        "ratelimitexceeded",
        "request_quota_exceeded",
        "resource_exhausted",
        "rpm_rate_limit_exceeded",
        "slow_down",
        "token_quota_exceeded",
        "too_many_requests",
        "toomanyrequests",
        "tpm_rate_limit_exceeded",
    }
)
"""Too many requests or tokens. A "quota" in these names is one that refills by itself."""

NO_CAPACITY = frozenset(
    {
        "capacity_exceeded",
        "resource_unavailable",
    }
)
"""A cheaper tier has no capacity at the moment."""

NO_MODEL = frozenset(
    {
        "deploymentnotfound",
        "invalid_model",
        "model_decommissioned",
        "model_not_available",
        "model_not_found",
        "not_found_error",
        "notfounderror",
        "unknown_model",
    }
)
"""The endpoint does not have this model."""

BAD_IMAGE = frozenset(
    {
        "empty_image_file",
        "failed_to_download_image",
        "image_file_too_large",
        "image_parse_error",
        "image_too_large",
        "image_too_small",
        "invalid_base64_image",
        "invalid_image",
        "invalid_image_format",
        "invalid_image_url",
        "unsupported_image_media_type",
    }
)
"""An image of the request cannot be used."""

BAD_OUTPUT = frozenset(
    {
        "json_validate_failed",
    }
)
"""The model wrote something its own schema check refused."""

UNSUPPORTED = frozenset(
    {
        "extra_forbidden",
        "invalid_json_schema",
        "unknown_parameter",
        "unsupported_feature",
        "unsupported_parameter",
        "unsupported_value",
    }
)
"""A parameter of the request, or its value, is not taken."""
