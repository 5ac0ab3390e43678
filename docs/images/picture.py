"""Draw docs/images/count.png: the real output of the command in the README.

Needs Chromium; run from the project's root: `.venv/bin/python docs/images/picture.py`.
"""

import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

COMMAND = ["count", "resnet50", "-b", "32", "--mode", "train", "--growth", "-q"]
PAGE = """<body style="margin:0;background:#0d1117;color:#e6edf3"><pre style="font:15px/1.35
'DejaVu Sans Mono',monospace;margin:16px 20px">{code}</pre></body>"""
SIZE = "1090,1020"


def main() -> None:
    run = [sys.executable, "-m", "ridgeline", *COMMAND]
    output = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(Text(f"$ ridgeline {' '.join(COMMAND[:-1])}", style="bold"))
    console.print(Text(re.sub(r"\n\s*\n+", "\n\n", output).strip("\n")))
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        page.write_text(console.export_html(code_format=PAGE, inline_styles=True))
        picture = Path(__file__).with_name("count.png")
        chromium = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        size = [
            f"--screenshot={picture}",
            f"--window-size={SIZE}",
            "--force-device-scale-factor=1.5",
        ]
        subprocess.run([*chromium, *size, page.as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    main()
