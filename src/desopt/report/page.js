const report = JSON.parse(document.getElementById("data").textContent);

function profiles() {
  if (!report.profiles.length) return;
  const chart = Chart(document.getElementById("profile-chart"));
  const box = document.getElementById("profile-controls");
  const items = distinct(report.profiles.map((p) => p.item));
  const item = choose(box, "Compared", items.map((name) => [name, name]), update);
  const deltas = distinct(report.profiles.map((p) => p.delta));
  const delta = pills(box, "delta", "Accuracy \u03b4", deltas.map((d, i) => [d, d, i === 0]), update);
  const cost = pills(box, "profile-cost", "Cost", [["rounds", "rounds", true], ["evaluations", "evaluations"]], update);
  function update() {
    const found = report.profiles.find((p) =>
      p.item === item.value && p.delta === Number(delta.value) && p.cost === cost.value);
    const right = Math.max(4, 1.15 * Math.max(1, ...found.lines.flatMap((l) => l.points.map(([t]) => t))));
    const lines = found.lines.map((l) => {
      const points = [...(l.points[0]?.[0] === 1 ? [] : [[1, 0]]), ...l.points];
      points.push([right, points.at(-1)[1]]);
      return { ...l, key: l.label, x: points.map(([t]) => t), y: points.map(([, r]) => r) };
    });
    chart.show({ lines, step: true, logX: true, logY: false, xLabel: "\u03c4", xName: "\u03c4 =",
      yLabel: "\u03c1(\u03c4), share solved", yRange: [0, 1.02] });
    document.getElementById("profile-note").textContent =
      `${found.instances} instances with results of all compared settings.`;
  }
  update();
}

if (report.items.length) Curves(report);
profiles();
