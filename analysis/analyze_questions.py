"""Draws figures and a report from dialogue logs. The same as ``slim-rl analyze``.

python analysis/analyze_questions.py --log_dir logs/ --output_dir plots/
"""

import shlex
import sys

from slim_rl.cli import main

if __name__ == "__main__":
    called = shlex.join(["analysis/analyze_questions.py", *sys.argv[1:]])
    main(["analyze", *sys.argv[1:]], command_line=called)
