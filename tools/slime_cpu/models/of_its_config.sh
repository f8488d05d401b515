# The architecture of MODEL by its config.json, as slime's own files have it for the models that they know (slime/scripts/models).
words=$("$PYTHON" -P -m slime_cpu.architecture "$MODEL")
read -ra MODEL_ARGS <<<"$words"
