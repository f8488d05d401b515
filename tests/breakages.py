"""Deliberate faults, and the tests that notice each.

    python -m tests.breakages              breaks a copy of the tree in each way, and prints which tests fail
    python -m tests.breakages mask kl      only these
    python -m tests.breakages --all-tests  with every test but those of verl's workers and slime's stack, which takes long

A fault that no test notices is an exit status of 1. `test_breakages.py` checks that each fault still applies to today's code.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.paths import ROOT


class Fault(NamedTuple):
    """One fault: a replacement that the file holds exactly once, and fast tests that are to fail by it."""

    file: str
    before: str
    after: str
    tests: tuple[str, ...]


FAULTS = {
    "mask": Fault(  # the first sampled token of each turn is not learned
        "slim_rl/dialogue/players.py",
        "self.dialogue.loss_mask += [mask] * len(ids)",
        "self.dialogue.loss_mask += [0, *[mask] * (len(ids) - 1)][: len(ids)]",
        ("tests/dialogue/test_loop.py::test_a_game_is_played_to_agreement",),
    ),
    "liar": Fault(  # a partner that tells each score one too high
        "slim_rl/games/matching/partners/scripted.py",
        "        return game[pair]\n",
        "        return None if game[pair] is None else game[pair] + 1\n",
        ("tests/games/matching/partners/test_scripted.py",),
    ),
    "baseline": Fault(  # a failed game counts as a game of reward 0
        "slim_rl/dialogue/training_reward.py",
        "        return dialogue.reward\n",
        "        return dialogue.reward or 0.0\n",
        (
            "tests/backends/test_slime_batch.py::test_failed_games_never_shift_a_baseline",
            "tests/lab/test_training_reward.py",
        ),
    ),
    "flag": Fault(  # a flag of slime's that is no longer given
        "slim_rl/config/sections.py",
        '                "--kl-loss-coef": lambda coef: coef or None,\n',
        "",
        (
            "tests/test_keys.py::test_every_key_is_a_configs_and_no_name_stands_twice",
            "tests/goldens/test_goldens.py::test_figures_after_any_change_are_the_goldens[flags]",
        ),
    ),
    "question": Fault(  # a question that is not counted
        "slim_rl/games/matching/questions/annotate.py",
        "list(reading.asked), reading.seeking\n",
        "list(reading.asked), False\n",
        ("tests/games/matching/questions/test_replies.py",),
    ),
    "resume": Fault(  # a run that starts over instead of resuming
        "slim_rl/backends/trl/checkpoints.py",
        "    return whole[max(whole)] if whole else None\n",
        "    return None\n",
        ("tests/backends/test_trl.py::test_run_interrupted_and_on_a_full_disk_ends_the_same",),
    ),
    "price": Fault(  # each question costs twice its price
        "slim_rl/lab/training_rewards.py",
        "(price * float(",
        "(2 * price * float(",
        ("tests/lab/test_training_reward.py",),
    ),
    "log": Fault(  # dialogues without a reward are not logged
        "slim_rl/dialogue/log.py",
        "            super().append(dialogue.to_dict(tokens=self.tokens))\n",
        "            if dialogue.reward is not None:\n                super().append(dialogue.to_dict(tokens=self.tokens))\n",
        ("tests/dialogue/test_log.py::test_log_failed_and_unrewarded_dialogues_have_lines",),
    ),
    "kl": Fault(  # the policy is rewarded for leaving the initial policy
        "slim_rl/config/sections.py",
        '{"beta": same,',
        '{"beta": lambda coef: -coef,',
        (
            "tests/goldens/test_goldens.py::test_figures_after_any_change_are_the_goldens[flags]",
            "tests/examples/test_grpo_by_hand.py::test_its_gradient_is_trls",
        ),
    ),
    "draw": Fault(  # each dialogue of a group has a partner of its own
        "slim_rl/dialogue/worker.py",
        '"partner", spec.row.game_id)',
        '"partner", spec.id)',
        ("tests/dialogue/test_worker.py::test_mixture_games_have_one_partner_each_by_seed",),
    ),
    "order": Fault(  # a mixture in another order of its members is another mixture
        "slim_rl/seeds.py",
        "    names = sorted(shares)\n",
        "    names = list(shares)\n",
        ("tests/dialogue/test_worker.py::test_mixture_games_have_one_partner_each_by_seed",),
    ),
    "member": Fault(  # a member plays with the arguments of all alone
        "slim_rl/config/__init__.py",
        'base["args"] | one.args',
        'base["args"]',
        (
            "tests/test_config.py::test_a_kind_replaces_a_mixture_by_any_change",
            "tests/dialogue/test_worker.py::test_mixture_member_is_logged_by_name_with_its_arguments",
        ),
    ),
    "kind": Fault(  # a change of the kind leaves the mixture
        "slim_rl/config/sections.py",
        '({"mixture": None} if "kind" in values else {})',
        "{}",
        ("tests/test_config.py::test_a_kind_replaces_a_mixture_by_any_change",),
    ),
    "repeated": Fault(  # of a repeated key the last one counts, and the settings below the first are lost
        "slim_rl/config/reading.py",
        "and key.value in seen:",
        "and key.value == seen:",
        ("tests/test_config.py::test_a_broken_file_is_named",),
    ),
    "folder": Fault(  # processes elsewhere look for the partner's files in their own folder
        "slim_rl/config/__init__.py",
        "str(Path(values[name]).absolute())",
        "values[name]",
        ("tests/test_config.py::test_a_config_for_another_folder_has_absolute_paths",),
    ),
    "secret": Fault(  # an endpoint that repeats the key has it in the log
        "slim_rl/partners/quoting.py",
        'text = text.replace(value, "***")',
        "text = str(text)",
        ("tests/partners/test_secrets.py",),
    ),
    "quote": Fault(  # a policy's words look like the game's to a chat model
        "slim_rl/partners/quoting.py",
        'f"> {line}"',
        'f"{line}"',
        ("tests/partners/test_messages.py::test_no_words_of_a_player_stand_unquoted",),
    ),
    "budget": Fault(  # requests are sent although the budget is spent
        "slim_rl/partners/spend.py",
        "if spent < self.budget_usd:",
        "if spent < 2 * self.budget_usd:",
        ("tests/partners/test_money.py::test_budget_spent_by_another_process_stops_this_one",),
    ),
    "reset": Fault(  # the end of a rate limit, in a header, is not read
        "slim_rl/partners/answers.py",
        '"retry-after|ratelimit"',
        '"retry-after"',
        ("tests/partners/test_answers.py::test_answer_has_its_outcome[a limit's reset]",),
    ),
    "channel": Fault(  # of a reply with channels, the first one is said
        "slim_rl/partners/quoting.py",
        "return parts[-1 if _TOKEN.match(text.lstrip()) else 0]",
        "return parts[0]",
        ("tests/partners/test_answers.py::test_answer_has_its_outcome[OpenAI's channels]",),
    ),
    "reason": Fault(  # a partner that fails after malformed replies loses its thoughts
        "slim_rl/partners/openai_chat.py",
        "                failure.thought = _joined(thoughts)\n",
        "",
        ("tests/partners/test_answers.py::test_failure_after_malformed_replies_has_thought_and_cost",),
    ),
    "probe": Fault(  # all calls ask an endpoint that is down at once
        "slim_rl/partners/endpoint.py",
        "await stack.enter_async_context(here.probing)",
        "pass",
        ("tests/partners/test_endpoint.py::test_outage_is_said_once_and_costs_no_game[401]",),
    ),
    "identity": Fault(  # a new setting of a partner makes every earlier identity another
        "slim_rl/games/matching/partners/scripted.py",
        "if getattr(self, each.name) != each.default",
        "",
        ("tests/dialogue/test_worker.py::test_identity_of_a_partner_survives_a_new_setting",),
    ),
    "solo": Fault(  # a deal is as hard as its second player finds it
        "slim_rl/games/matching/generate.py",
        "solo[rest] = np.maximum(solo[rest], scores_by(beliefs[rest], tables[rest]))",
        "solo[rest] = scores_by(beliefs[rest], tables[rest])",
        ("tests/games/matching/test_generate.py::test_every_game_is_hard_and_whole",),
    ),
    "errors": Fault(  # refused actions end a game, in a row or not
        "slim_rl/games/matching/env.py",
        "        self.errors = 0\n        self.turns_taken += 1\n",
        "        self.turns_taken += 1\n",
        ("tests/games/matching/test_env.py::test_game_is_played_as_its_case_says",),
    ),
    "echo": Fault(  # a score that the question names itself counts as learned
        "slim_rl/games/matching/questions/answers.py",
        " if value not in named)",
        ")",
        ("tests/games/matching/questions/test_replies.py::test_reply_makes_of_messages_what_its_line_says",),
    ),
    "prefix": Fault(  # a dialogue continues from the states of another past
        "slim_rl/policies/batching/turn_cache.py",
        " or cached.ids != list(input_ids[:length])",
        "",
        ("tests/policies/test_batching.py::test_another_past_is_not_mistaken_for_ones_own",),
    ),
    "stream": Fault(  # each turn of a dialogue draws the same numbers
        "slim_rl/policies/transformers.py",
        "seed_of(self._seed, key, len(input_ids))",
        "seed_of(self._seed, key)",
        ("tests/policies/test_transformers.py::test_turns_of_one_dialogue_draw_other_numbers_each",),
    ),
    "sampler": Fault(  # a checkpoint's sampling settings count behind a server
        "slim_rl/policies/served.py",
        '"top_k": 0,',
        '"top_k": 20,',
        ("tests/policies/test_served.py::test_a_dialogue_over_the_wire[vllm]",),
    ),
    "batch": Fault(  # a batch has no bound
        "slim_rl/policies/transformers.py",
        "self.max_batch - len(live)",
        "10**6 - len(live)",
        ("tests/policies/test_transformers.py::test_waves_larger_than_the_batch_are_done_in_parts",),
    ),
    "seat": Fault(  # self-play gives each seat the other's turns
        "slim_rl/dialogue/loop.py",
        'replace(turn, role="policy") if turn.seat == seat',
        'replace(turn, role="policy") if turn.seat != seat',
        ("tests/dialogue/test_loop.py::test_selfplay_gives_each_seat_its_own_view",),
    ),
    "groups": Fault(  # self-play compares both seats in one group
        "slim_rl/dialogue/worker.py",
        'group=f"{spec.group}/{seat}" if self.selfplay else spec.group',
        "group=spec.group",
        ("tests/backends/test_trl.py::test_trl_rollouts_come_in_the_order_of_the_prompts",),
    ),
    "sides": Fault(  # self-play trains each seat's group on the other seat's dialogues
        "slim_rl/backends/trl/rollouts.py",
        "{spec.id}/{name.rpartition('/')[2]}",
        "{spec.id}/{1 - int(name.rpartition('/')[2])}",
        ("tests/backends/test_trl.py::test_trl_rollouts_come_in_the_order_of_the_prompts",),
    ),
    "share": Fault(  # each process learns from the rewards of rank 0
        "slim_rl/backends/trl/rollouts.py",
        "slice(rank * len(dialogues), (rank + 1) * len(dialogues))",
        "slice(0, len(dialogues))",
        ("tests/backends/test_training_reward.py::test_trl_process_gets_its_own_share_of_the_step",),
    ),
    "twice": Fault(  # a resumed run keeps the metrics of the steps that it trains again
        "slim_rl/backends/trl/callbacks.py",
        'line["step"] < state.global_step)',
        'line["step"] <= state.global_step)',
        ("tests/backends/test_trl.py::test_run_interrupted_and_on_a_full_disk_ends_the_same",),
    ),
    "lost": Fault(  # a resumed run loses the metrics of the last step of its checkpoint
        "slim_rl/backends/trl/callbacks.py",
        'line["step"] < state.global_step)',
        'line["step"] < state.global_step - 1)',
        ("tests/backends/test_trl.py::test_run_interrupted_and_on_a_full_disk_ends_the_same",),
    ),
    "eval": Fault(  # a failed game counts as 0 in slime's average of an evaluation
        "slim_rl/backends/slime/log.py",
        "[fmean(played) if reward is None else reward for reward in rewards]",
        "[reward or 0.0 for reward in rewards]",
        ("tests/backends/test_slime_batch.py::test_an_evaluations_average_is_of_the_games_played",),
    ),
    "failed": Fault(  # verl learns from failed dialogues
        "slim_rl/backends/verl/agent_loop.py",
        "if dialogue.failed or not dialogue.response_ids:",
        "if not dialogue.response_ids:",
        ("tests/backends/test_verl_loop.py::test_a_failed_dialogue_leaves_no_trace_in_its_group",),
    ),
    "mark": Fault(  # verl's run does not stop when its partner takes no more calls
        "slim_rl/backends/verl/agent_loop.py",
        "if why := Failures([dialogue]).stopped:",
        "if False:",
        ("tests/backends/test_verl_loop.py::test_partner_that_takes_no_more_calls_leaves_the_stop_mark",),
    ),
    "cut": Fault(  # a turn that verl's engine cut counts as whole
        "slim_rl/backends/verl/policy.py",
        "cut = len(ids) >= max_tokens and ids[-1] not in self.stop_ids",
        "cut = False",
        ("tests/backends/test_invariants.py::test_turn_that_is_cut_ends_the_dialogue_by_default[verl]",),
    ),
    "logprobs": Fault(  # slime is given no logprobs of the engine's
        "slim_rl/backends/slime/hook.py",
        "dialogue.logprobs[start:end]\n",
        "[0.0] * (end - start)\n",
        ("tests/backends/test_invariants.py::test_mask_prefix_text_and_reward_of_a_dialogue[slime-False]",),
    ),
    "phase": Fault(  # slime's held-out games are counted as training
        "slim_rl/backends/slime/hook.py",
        'phase = "eval" if evaluation else "train"',
        'phase = "train"',
        ("tests/backends/test_slime_hook.py::test_evaluation_shares_its_parameters_and_has_no_session",),
    ),
    "kept": Fault(  # a failed sample is not removed
        "slim_rl/backends/slime/hook.py",
        "Sample.Status.FAILED, 0.0, True",
        "Sample.Status.FAILED, 0.0, False",
        ("tests/backends/test_slime_hook.py::test_what_fails_fails_the_sample_and_nothing_else",),
    ),
    "reference": Fault(  # a resumed run of slime's plays with the reference's weights
        "slim_rl/backends/slime/driver.py",
        "if others and not args.offload_train",
        "if False and not args.offload_train",
        ("tests/backends/test_slime_driver.py::test_driver_resumed_run_samples_from_the_policy_first",),
    ),
    "resumed": Fault(  # TRL's resumed run leaves the lines of the steps that it plays again
        "slim_rl/backends/trl/run.py",
        "from_step=step, tokens",
        "from_step=None, tokens",
        ("tests/backends/test_trl.py::test_run_interrupted_and_on_a_full_disk_ends_the_same",),
    ),
    "stopped": Fault(  # TRL's step that a stop met is not in the log
        "slim_rl/backends/trl/rollouts.py",
        "        for dialogue in dialogues:\n            self.log.append(dialogue)\n",
        "        Failures(dialogues).check(self.config)\n        for dialogue in dialogues:\n            self.log.append(dialogue)\n",
        ("tests/backends/test_trl.py::test_too_many_failures_stop_the_run_once_they_are_logged",),
    ),
    "diverged": Fault(  # TRL updates with a gradient that is not finite
        "slim_rl/backends/trl/finite.py",
        "if not self.accelerator.gather(",
        "if False and not self.accelerator.gather(",
        ("tests/backends/test_trl_stop.py::test_the_last_checkpoint_before_it_is_named_and_whole",),
    ),
    "again": Fault(  # an evaluation never plays a failed dialogue again
        "slim_rl/dialogue/evaluation.py",
        "for dialogue in earlier if not dialogue.failed}",
        "for dialogue in earlier}",
        ("tests/dialogue/test_evaluation.py::test_failed_dialogues_are_played_again",),
    ),
    "steps": Fault(  # a resumed run keeps the dialogues of the steps that it plays again
        "slim_rl/dialogue/log.py",
        '(line.get("step") or 0) < from_step',
        '(line.get("step") or 0) <= from_step',
        ("tests/dialogue/test_log.py::test_log_resume_drops_lines_of_repeated_steps",),
    ),
    "hidden": Fault(  # the other seat reads a refused action
        "slim_rl/dialogue/loop.py",
        "if is_valid or seat == author:",
        "if True:",
        ("tests/dialogue/test_loop.py::test_errors_go_to_their_author_alone",),
    ),
    "pool": Fault(  # runs that differ in any setting are seeds of one arm
        "slim_rl/analysis/arms.py",
        '    settings: dict[str, Any] = orjson.loads(row["settings"])\n',
        "    settings: dict[str, Any] = {}\n",
        ("tests/analysis/test_arms.py",),
    ),
    "untrained": Fault(  # the initial policy's games are also those after training, of a run without later ones
        "slim_rl/analysis/held_out.py",
        '(played["step"] == last) & ~untrained',
        '(played["step"] == last)',
        ("tests/lab/test_experiment.py::test_run_without_later_evaluation_is_not_trained",),
    ),
    "seeds": Fault(  # an interval over seeds and games that leaves out the seeds
        "slim_rl/statistics.py",
        "variance = max(of_runs.sum() + of_games - both, of_runs.sum(), of_games)",
        "variance = of_games",
        ("tests/analysis/test_crossed.py",),
    ),
    "wrong": Fault(  # the wrong score of a partner that errs may be the right one
        "slim_rl/games/matching/study/controls.py",
        "if other != value]",
        "]",
        ("tests/games/matching/partners/test_controls.py::test_it_errs_in_a_tenth_of_its_answers_and_sticks_to_it",),
    ),
    "room": Fault(  # a turn without room for a token is asked for
        "slim_rl/dialogue/players.py",
        "if allowed <= 0:",
        "if allowed < 0:",
        ("tests/dialogue/test_loop.py::test_token_budgets_are_never_passed",),
    ),
    "side": Fault(  # a policy by text that is down counts as a failure of the partner
        "slim_rl/dialogue/loop.py",
        "ours = is_policy and",
        "ours = False and",
        ("tests/dialogue/test_loop.py::test_errors_and_failures_are_stop_reasons",),
    ),
    "stale": Fault(  # lines of an earlier annotator keep its annotations
        "slim_rl/dialogue/log.py",
        "if not again and dialogue.annotator_version == made.annotator_version:",
        "if not again:",
        ("tests/dialogue/test_log.py::test_line_of_another_annotator_is_annotated_anew",),
    ),
    "escape": Fault(  # a log's text is markup of the page
        "slim_rl/analysis/page.py",
        "autoescape=select_autoescape()",
        "autoescape=False",
        ("tests/analysis/test_report.py::test_nothing_is_fetched_and_an_attack_stays_text",),
    ),
    "family": Fault(  # contrasts computed elsewhere do not count in Holm's correction
        "slim_rl/lab/experiment/results.py",
        'row["p"] for row in family), *others])',
        'row["p"] for row in family)])',
        ("tests/lab/test_experiment.py::test_contrasts_computed_elsewhere_count_in_the_family",),
    ),
    "twin": Fault(  # a run begins although the run whose log it reads has failed
        "slim_rl/commands/lab/run.py",
        "any(codes.get(each, 1) for each in names & run.needs)",
        "False",
        ("tests/commands/test_lab_run.py::test_run_waits_for_the_log_of_its_twin",),
    ),
    "charge": Fault(  # the parts of the gap do not charge questions
        "slim_rl/lab/gap.py",
        '"lost_by_choice": same_number - (known - price * k),',
        '"lost_by_choice": same_number - known,',
        ("tests/lab/test_gap.py::test_the_parts_sum_to_the_whole",),
    ),
    "next": Fault(  # the prediction for one more run is the interval of the mean
        "slim_rl/statistics.py", "np.sqrt(1 + 1 / len(x))", "np.sqrt(1 / len(x))", ("tests/analysis/test_crossed.py",)
    ),
    "longer": Fault(  # of two runs of one seed the shorter one counts
        "slim_rl/analysis/arms.py",
        '["step", "size"], ascending=False',
        '["step", "size"], ascending=True',
        ("tests/analysis/test_arms.py",),
    ),
    "theirs": Fault(  # a run that starts over removes the evaluations beside its log
        "slim_rl/runs.py", '("train*.jsonl", "eval-[0-9]*.jsonl")', '("*.jsonl",)', ("tests/test_runs.py",)
    ),
    "alive": Fault(  # what another process is writing is swept away
        "slim_rl/files.py",
        "number.isdecimal() and not alive(int(number))",
        "number.isdecimal()",
        ("tests/test_runs.py",),
    ),
}
EVERYTHING = ("-m", "not verl and not slime", "tests")


def applied(fault: Fault, root: Path) -> str:
    """Returns the broken file's text. Raises ValueError unless the fault fits the file in exactly one place."""
    text = (root / fault.file).read_text(encoding="utf-8")
    if text.count(fault.before) != 1:
        raise ValueError(
            f"{fault.file} has {fault.before!r} {text.count(fault.before)} times; adapt tests/breakages.py."
        )
    return text.replace(fault.before, fault.after)


def red(root: Path, tests: tuple[str, ...]) -> list[str]:
    """Returns the tests that fail in a tree."""
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=no", "-rfE", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.M)


def main() -> int:
    """Runs the faults that are named, or all; returns the exit status."""
    parser = argparse.ArgumentParser(description="Break a copy of the tree on purpose and list the tests that fail.")
    parser.add_argument("faults", nargs="*", choices=[[], *FAULTS], default=[])
    parser.add_argument("--all-tests", action="store_true", help="run every test per fault")
    options = parser.parse_args()
    unnoticed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / ROOT.name
        ignored = shutil.ignore_patterns(".git", ".venv*", "build", "runs", "logs", "plots", "*_cache", "__pycache__")
        shutil.copytree(ROOT, copy, ignore=ignored, symlinks=True)
        for place, beside in ((copy / "build", ROOT / "build"), (copy.parent / "shared", ROOT.parent / "shared")):
            if beside.exists():  # slime's sources, and those unpacked
                place.symlink_to(beside)
        for name in options.faults or FAULTS:
            fault = FAULTS[name]
            file, whole = copy / fault.file, (copy / fault.file).read_text(encoding="utf-8")
            file.write_text(applied(fault, copy), encoding="utf-8")
            failing = red(copy, EVERYTHING if options.all_tests else fault.tests)
            file.write_text(whole, encoding="utf-8")
            without = red(copy, tuple(failing)) if failing else []
            failing = [test for test in failing if test not in without]
            unnoticed += not failing
            print(f"{name:9} {len(failing):3} red: {', '.join(failing[:3]) or 'NOT NOTICED'}", flush=True)
    return min(unnoticed, 1)


if __name__ == "__main__":
    raise SystemExit(main())
