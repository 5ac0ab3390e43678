"""Tables, figures, the page and report.md from what is stored. Nothing here runs a model.

checked.py, views.py    runs and tables that can be trusted; the CSV views of them
counts.py, run_facts.py which count belongs to a run, and what the join needs of it
profiles.py, machines.py   which profile belongs to a run, and which roofs to a device
study.py                everything joined: runs, roofs, points, findings, counters
executed.py             what the hardware did, as tables and sentences
cases.py                which runs are the same thing done again
summary.py              a study in a few sentences, for terminal, page and report.md
statements.py, hypotheses.py   sentences that the data supports
markdown.py, sections.py   report.md, with places for the user's own words
templates/              the wording of report.md, of its sentences, and of the notebook
tables.py               the tables as CSV, Markdown and LaTeX
summary_csv.py          a row for each step and capture
notebook.py, repeat.py  a notebook that reloads the data; the command that makes a run again
figures/, page/         drawn with matplotlib; one HTML file
selectors.py, compare*.py, two_samples.py two sides compared, with intervals and a test
roofs_text.py           the roofs of a machine in characters
markup.py, text.py      escaping, templates; plurals, rows
"""
