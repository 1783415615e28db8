"""The audit: watches a run for reward hacking, beside the rewards and no part of them. See `referee docs audit`."""
