"""The script that Streamlit runs for each visitor: `streamlit run app.py -- DIR`, as `serve` does."""

import sys

from rllib_scale_analysis.dashboard.page import main

from rllib_scale.results.storage import Location

if __name__ == "__main__":
    main([Location(place) for place in sys.argv[1:]])
