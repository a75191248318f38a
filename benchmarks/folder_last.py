"""Imported for its effect: this folder comes last on the path.

`evaluation.py` and `serving.py` here are named like packages that scripts of this folder import.
"""

import sys
from pathlib import Path

HERE = str(Path(__file__).resolve().parent)
sys.path[:] = [*(path for path in sys.path if path != HERE), HERE]
