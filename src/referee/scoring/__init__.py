"""From samples to rewards: the client half (tracker) and the worker half of scoring, wherever each of them runs."""
