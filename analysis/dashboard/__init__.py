"""A live page over a results folder: `rllib-scale dashboard DIR`.

    runs.py        the table of runs: trainings, and what was evaluated
    store.py       what the page shows of a folder, read again only where a file has changed
    selection.py   filters
    charts.py      figures of evaluation and training
    episodes.py    figures of one episode that is played again
    page.py        the page: Streamlit, and nothing that could be tested without a browser; so are its
    controls.py    selectors and tables,
    views.py       views of many rows
    episode_view.py  and of one episode
    app.py         the script that Streamlit runs
    serve.py       starts it

What stands above page.py, and serve.py, can be loaded without Streamlit.
"""
