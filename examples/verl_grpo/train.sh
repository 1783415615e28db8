#!/usr/bin/env bash
# GRPO on GSM8K with an LLM judge. More overrides may follow: ./train.sh trainer.n_gpus_per_node=8
set -euo pipefail
cd "$(dirname "$0")"
mapfile -t overrides < <(grep -v '^#' overrides.txt | grep .)
python -m referee.trainers.verl "${overrides[@]}" "$@"   # refuses keys that verl would ignore
exec python -m verl.trainer.main_ppo "${overrides[@]}" "$@"
