// Every run, with the command that repeats it; every capture, with the file that it is from.

function startRuns() {
  const host = byId("runs-body");
  if (!R.measured) return host.append(make("p", { class: "empty" }, NO_RUN));
  const count = (text) => (text ? text.split("\n").length : 0);
  makeTable(host, {
    caption: "Runs",
    rows: ALL_RUNS.map((run) => ({ run, label: R.name[run] })),
    search: "model, machine, command, warning",
    inside: insideRun,
    columns: [
      runWord("name", "Run", (run) => R.name[run], { wide: true }),
      runWord("status", "Status", (run) => R.status[run]),
      runNumber("step", "Step", (run) => R.step_s[run], formatTime),
      runNumber(
        "clock",
        "Clock",
        (run) => R.clock_hz[run],
        (value) => si(value, "Hz"),
      ),
      runNumber("warnings", "Warnings", (run) => count(R.warnings[run]), String),
      runNumber("flags", "Marked", (run) => count(R.flags[run]), String),
      {
        ...runWord("command", "Command", (run) => R.command[run], { wide: true }),
        node: ({ run }) => make("code", {}, R.command[run]),
      },
    ],
  });
  return undefined;
}

function startCaptures() {
  const captures = Array.from({ length: R.count - R.measured }, (_, n) => R.measured + n);
  if (!captures.length) return;
  const host = byId("captures-body");
  host.append(
    make("h3", {}, "Captures"),
    make(
      "p",
      { class: "about" },
      "Kernels that a profiler recorded, with the file or program that they are from. The time is that at which a capture was taken into the results folder.",
    ),
  );
  makeTable(host, {
    caption: "Captures",
    rows: captures.map((run) => ({ run, label: R.name[run] })),
    search: "capture, file, device",
    inside: insideCapture,
    columns: [
      runWord("name", "Capture", (run) => R.model[run], { wide: true }),
      runWord("files", "File or program", (run) => R.files[run], { wide: true }),
      runWord("device", "Device", (run) => R.device[run] || "not named"),
      runWord("time", "Time", (run) => R.time[run]),
      {
        ...runWord("command", "Command", (run) => R.command[run], { wide: true }),
        node: ({ run }) => make("code", {}, R.command[run]),
      },
    ],
  });
}

function insideCapture({ run }) {
  return factList([
    ["Stored as", make("code", {}, R.id[run])],
    ["File or program", R.files[run]],
    ["Repeat with", commandLine(R.command[run])],
    ["Warnings", R.warnings[run]],
  ]);
}

function insideRun({ run }) {
  const clock = [
    si(R.clock_hz[run], "Hz"),
    isKnown(R.temperature_c[run]) ? `${R.temperature_c[run]} °C` : "",
    R.limits[run] ? `limited by ${R.limits[run].replaceAll(";", ", ")}` : "",
  ];
  const facts = [
    ["Run", make("code", {}, R.id[run])],
    ["Label", R.label[run]],
    ["When", R.time[run]],
    ["Repeat with", commandLine(R.command[run])],
    ["Versions", R.versions[run]],
    ["Host", R.host[run]],
    ["Clock", clock.filter((text) => text && text !== UNKNOWN).join(", ")],
    ["Steps", `${R.iters[run]} timed, ${formatTime(R.step_std_s[run])} standard deviation`],
    ["Count", R.count_id[run]],
    ["Warnings", R.warnings[run]],
    ["Marked", R.flags[run]],
  ];
  return factList(facts);
}

function factList(facts) {
  return make(
    "dl",
    {},
    facts
      .filter(([, content]) => content)
      .flatMap(([name, content]) => [make("dt", {}, name), make("dd", {}, content)]),
  );
}

function commandLine(command) {
  const button = make("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    const range = document.createRange();
    range.selectNodeContents(button.parentElement.querySelector("code"));
    getSelection().removeAllRanges();
    getSelection().addRange(range); // where a page from a file may not copy, the text is selected
    try {
      await navigator.clipboard.writeText(command);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Selected";
    }
  });
  return make("div", { class: "command" }, make("code", {}, command), button);
}
