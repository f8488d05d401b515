"""The command line: light to start, one sentence for what is wrong."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from slim_rl import __version__
from slim_rl.cli import COMMANDS, LAB
from tests.commands.shell import Done, process
from tests.paths import MISSING, ROOT

LOCAL = "configs/matching_local.yaml"


def test_help_names_every_command(slim_rl) -> None:
    result = slim_rl("--help")
    assert result.returncode == 0
    assert all(f"  {command} " in result.stdout for command in (*COMMANDS, "lab")) and len(COMMANDS) == 8
    of_lab = slim_rl("lab", "--help")
    assert of_lab.returncode == 0 and of_lab.stdout == slim_rl("lab").stdout
    assert all(f"  {command} " in of_lab.stdout for command in LAB)
    for command, usage in (("show", "[LOG]..."), ("generate", "[CONFIG]")):
        assert slim_rl(command, "--help").stdout.startswith(f"Usage: slim-rl {command} [OPTIONS] {usage}\n")
    assert slim_rl("--version").stdout == f"slim-rl {__version__}\n"


@pytest.mark.parametrize(
    ("words", "meant"), [(["trian"], "train"), (["warmstart"], "lab warmstart"), (["lab", "warmstrat"], "warmstart")]
)
def test_an_unknown_command_names_the_nearest(slim_rl, words, meant) -> None:
    result = slim_rl(*words)
    assert result.returncode == 2 and f"did you mean {meant}?" in result.stderr


REFUSALS = (ROOT / "tests" / "commands" / "refusals.txt").read_text(encoding="utf-8").replace("MISSING", MISSING)


@pytest.mark.parametrize("line", REFUSALS.splitlines())
def test_what_is_wrong_is_one_sentence_and_exit_code_1(slim_rl, line) -> None:
    """Each line: words => what the sentence says."""
    words, _, says = line.partition(" => ")
    check_one_sentence(slim_rl(*shlex.split(words)), says)


def check_one_sentence(result: Done, says: str, code: int = 1) -> None:
    assert result.returncode == code, result.stderr
    assert says in result.stderr and "Traceback" not in result.stderr and result.stderr.startswith("slim-rl: ")
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x93\x00\xff\x12", "not text"),
        (b"a: " + b"[" * 1000, "not valid YAML"),
        (b"a: &a {b: *a}", "'a' is not a key slim_rl knows"),
        (b"a: '1", "not valid YAML"),
    ],
    ids=["binary", "deep", "endless", "no end"],
)
def test_a_file_that_is_no_config_is_one_sentence(slim_rl, tmp_path, content, says) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    check_one_sentence(slim_rl("lab", "run", path, "--dry-run"), says)


UNREAD = """
--num-games -1 => --num-games
--num-games 0 => --num-games
--num-games many => --num-games
--num-games => requires an argument
--human nope => 'nope' does not exist
--bogus => No such option: --bogus; slim-rl evaluate --help lists the options.
"""


@pytest.mark.parametrize("line", UNREAD.strip().splitlines())
def test_options_that_cannot_be_read_are_one_sentence_too(slim_rl, line) -> None:
    words, _, says = line.partition(" => ")
    check_one_sentence(slim_rl("evaluate", LOCAL, "--checkpoint", "data/warmstart", *words.split()), says, 2)


def test_without_the_local_extra_it_says_what_to_install(tmp_path: Path) -> None:
    # None in sys.modules is how Python remembers that a module is not there
    code = f"import sys; sys.modules['torch'] = None; from slim_rl import cli; sys.argv[1:] = ['train', {LOCAL!r}]; cli.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1 and "needs torch" in done.stderr and "Traceback" not in done.stderr


def test_a_log_file_gets_few_progress_bars() -> None:
    bars = "import time; from tqdm import tqdm; [time.sleep(0.02) for _ in tqdm(range(50))]"
    code = f"from slim_rl import cli; cli.main(['--help']); {bars}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < done.stderr.count("/50 [") <= 2


def test_a_sentence_about_a_url_has_no_password(slim_rl) -> None:
    done = slim_rl("generate", LOCAL, "--set", "partner.openai.concurrency=http://bob:s3cret@host/v1")
    assert done.returncode == 1 and "http://***@host/v1" in done.stderr and "s3cret" not in done.stderr


CLOSED = 'exec "$@" >&-'
LEFT = '{ sleep 0.1; exec "$@"; } | :'  # its reader has ended by then


@pytest.mark.parametrize("how", [CLOSED, LEFT])
def test_output_that_nothing_reads_is_no_traceback(tmp_path: Path, how: str) -> None:
    """And the results are written."""

    def done(*words: str) -> str:
        command = ["bash", "-c", how, "bash", sys.executable, "-m", "slim_rl.cli", *words]
        return subprocess.run(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=120, check=False).stderr

    assert done("--help") == ""
    words = ["generate", "--n", "3", "--num-games", "2", "--output", str(tmp_path / "games.jsonl")]
    assert done(*words) == "" and (tmp_path / "games.jsonl").stat().st_size


def test_a_terminal_that_is_not_utf_8_is_no_traceback() -> None:
    words = ("lab", "incentives", "guess_who_local", "--games", "5")
    done = process(*words, env={**os.environ, "PYTHONIOENCODING": "ascii"}, encoding="ascii")
    assert (done.returncode, done.stderr) == (0, "") and "question" in done.stdout
