// The curves of a study, with a choice of everything that it varies.
function Curves(report) {
  const chart = Chart(document.getElementById("chart"));
  const box = document.getElementById("controls");
  const item = choose(box, "Experiment", report.items.map((it, i) => [String(i), it.name]), update);
  const problem = choose(box, "Problem", [], update);
  const data = choose(box, "Data set", [], update);
  const step = choose(box, "Step size", [], update);
  const part = pills(box, "part", "Rows", [["train", "training", true], ["test", "test"]], update);
  const measure = pills(box, "measure", "Measure", [["loss", "loss", true], ["error", "error"]], update);
  const cost = pills(box, "cost", "Against", Object.keys(report.costs).map((c, i) => [c, c, i === 0]), update);
  const logs = pills(box, "logs", "Log axes", [["x", "x"], ["y", "y", true]], update, "checkbox");
  const first = report.items.findIndex((it) => it.name.toLowerCase() === "methods");
  item.value = String(Math.max(0, first));

  function offer(members) {
    const found = members.map(([s]) => report.series[s]);
    refill(problem, Object.entries(report.problems).filter(([p]) => found.some((s) => s.problem === p)));
    refill(data, Object.entries(report.data).filter(([d]) => found.some((s) => s.data === d && s.problem === problem.value)));
    const steps = distinct(found.map((s) => s.step)).sort((a, b) => (a === "auto") - (b === "auto") || a - b);
    const each = steps.map((a) => [String(a), `\u03b1 = ${a}`]);
    refill(step, steps.length > 1 ? [["best", "best of each"], ...each, ["all", "all"]] : each);
    return steps;
  }

  function update() {
    const chosen = report.items[Number(item.value)];
    const steps = offer(chosen.members);
    const shown = chosen.members.filter(([s, , best]) => {
      const series = report.series[s];
      return series.problem === problem.value && series.data === data.value &&
        (step.value === "all" || (step.value === "best" ? best : String(series.step) === step.value));
    }).sort((a, b) => a[1] - b[1]);
    const metric = `${part.value}_${measure.value}`;
    const lines = shown.map(([s, variant]) => line(report.series[s], chosen.variants[variant], metric, steps));
    chart.show({ lines, logX: logs.has("x"), logY: logs.has("y"), xLabel: report.costs[cost.value],
      xName: cost.value, yLabel: report.metrics[metric] });
    const runs = distinct(shown.map(([s]) => report.series[s].runs)).sort((a, b) => a - b);
    document.getElementById("note").textContent = lines.length
      ? `${report.problems[problem.value]} on ${report.data[data.value]}. ` +
        (runs.at(-1) > 1 ? `Median of ${distinct([runs[0], runs.at(-1)]).join(" to ")} runs; the band spans the quartiles.` : "One run.")
      : "No finished run with these settings.";
  }

  function line(series, variant, metric, steps) {
    const many = step.value === "all";
    const dashes = report.step_dashes;
    const [low, median, high] = series.y[metric];
    const y = numbers(median);
    const alpha = `\u03b1 = ${series.step}`;
    const tag = variant.label.endsWith(alpha) ? "" : `, ${alpha}`;
    return { ...variant, label: variant.label + tag, key: variant.label + (many ? tag : ""), dash: many ? dashes[steps.indexOf(series.step) % dashes.length] : variant.dash,
      x: report.columns[series.x[cost.value]], y, low: low.map((v, i) => v ?? y[i]), high: high.map((v, i) => v ?? y[i]) };
  }
  update();
  return {
    show(next) { // the same study with more results
      report = next;
      refill(item, report.items.map((it, i) => [String(i), it.name]));
      update();
    },
  };
}
