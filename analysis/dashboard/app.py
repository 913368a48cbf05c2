"""The script that Streamlit runs for each visitor: `streamlit run app.py -- DIR`, as `serve` does."""

import sys
from pathlib import Path

from rllib_scale_analysis.dashboard.page import main

main(Path(sys.argv[1]))
