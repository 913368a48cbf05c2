"""The script that Streamlit runs for each visitor: `streamlit run app.py -- DIR`, as `serve` does."""

import sys
from pathlib import Path

from rllib_scale_analysis.dashboard.page import main

if __name__ == "__main__":
    main(Path(sys.argv[1]))
