"""A live page over a results folder: `rllib-scale dashboard DIR`.

    runs.py        the table of runs: trainings and evaluations
    selection.py   filters
    charts.py      figures of evaluation and training
    episodes.py    figures of one replayed episode
    page.py        the page
    controls.py    its selectors and tables
    views.py       its views of many rows
    episode_view.py  its view of one episode
    app.py         the script that Streamlit runs
    serve.py       starts Streamlit

The modules above page.py, and serve.py, do not import Streamlit.
"""
