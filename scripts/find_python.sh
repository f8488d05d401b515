# Sourced by the scripts beside it: sets PYTHON to one that has slim_rl's packages. That is $PYTHON where it is set, else python3,
# else the one that `make` set up in .venv.
has_packages() {
    "$1" -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ("httpx", "openai", "pydantic", "scipy", "yaml"))))' 2>/dev/null
}
checkout=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
if [[ -z ${PYTHON:-} ]]; then
    PYTHON=python3
    if ! has_packages python3 && [[ -x $checkout/.venv/bin/python ]]; then PYTHON=$checkout/.venv/bin/python; fi
fi
if ! has_packages "$PYTHON"; then
    what=slim-rl
    if [[ -f $checkout/pyproject.toml ]]; then what="-e $checkout"; fi
    echo "slim-rl: $PYTHON lacks packages that slim_rl needs: $PYTHON -m pip install $what, or set PYTHON to one that has them." >&2
    exit 1
fi
case $PYTHON in /*) ;; */*) PYTHON=$PWD/$PYTHON ;; esac
export PYTHON
