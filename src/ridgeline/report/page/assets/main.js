// Everything is started here, from top to bottom.

if (byId("filters")) {
  startFilters();
  startPointer();
  onTheme(drawSoon);
}
startLayers();
startExecuted();
startThroughput();
startEnergy();
startSweeps();
startRuns();
startCaptures();
startProvenance();
startTheme();
startPrinting(growForPrint);

// For tests: what is drawn. Reading changes nothing.
window.ridgeline = Object.freeze({
  format: { si, formatTime, formatPercent, formatRatio },
  drawn: () => plot.marks?.count ?? 0,
  draws: () => plot.draws,
  filters: () => ({ ...shown }),
  lines: () =>
    plot.lines.map((line) => ({
      name: line.name,
      machine: line.machine.title,
      source: line.source,
      rate: line.rate,
    })),
  roofLabels: () => structuredClone(plot.roofLabels),
  names: () => structuredClone(plot.names),
  pickTime: () => hand.pickTime,
  span: () => [...plot.spanX, ...plot.spanY],
  marks: () =>
    plot.marks.point.map((i, m) => ({
      name: P.name[i],
      x: plot.marks.px?.[m], // none before it is drawn
      y: plot.marks.py?.[m],
      machine: machineTitle(P.run[i]),
      phase: P.phase[i],
      kind: P.kind[i],
      grain: P.grain[i],
      precision: R.precision[P.run[i]],
      model: R.model[P.run[i]],
      run: R.name[P.run[i]],
    })),
});
