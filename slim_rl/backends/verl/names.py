"""Names that the launcher and verl's processes share."""

STOP_MARK = "stopped"  # in the run's folder: why the partner takes no more calls; see `stop`
# Set in the job's environment on every node; `plugin` reads it in the workers.
REFERENCE_VARIABLE = "SLIM_RL_REFERENCE_MODEL"
# Estimators of advantages that `plugin` registers.
PLAYED, TURN_CREDIT = "grpo_played", "turn_credit"
