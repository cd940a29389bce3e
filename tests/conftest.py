"""Puts the repository root on the path, so that the tests import the fastmargin beside them and no installed one."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
