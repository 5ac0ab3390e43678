"""Tables, figures, the page and report.md from what is stored. Nothing here runs a model.

stored.py               tables, counts, profiles, captures and roofs: which of them belong to a run
views.py                one run as a row: CSV views, its environment, the command that repeats it
configurations.py       the settings of a run; which runs are repeats, in what configurations differ
study.py                everything joined: runs, roofs, points, findings, counters, configurations
executed.py             what the hardware did: kernels and captures as tables, times in words
summary.py              a study in a few sentences, for terminal, page and report.md
hypotheses.py           hypotheses that a study tests
markdown.py, sections.py   report.md, with sections for the user's own words; a notebook
templates/              the wording of report.md and of the notebook
tables.py               the tables as CSV, Markdown and LaTeX
compare.py              two sides: which runs they are, which configurations match, what differs
comparison.py           the statistics of two sides, the result as a record, as JSON, as text
figures/, page/         drawn with matplotlib; one HTML file
text.py                 plurals, rows, escaping, templates
"""
