const settings = JSON.parse(document.getElementById("settings").textContent);
const byId = (name) => document.getElementById(name);
const chosen = new Set(); // runs in the chart
const looks = new Map(); // a run keeps its look while it is shown
const seen = new Map(); // curves by run
let overview = { runs: [], studies: [] }, current = null, touched = false;

async function ask(what, query = {}) {
  const response = await fetch(`/api/${what}?${new URLSearchParams(query)}`);
  const found = await response.json();
  if (!response.ok) throw Object.assign(new Error(found.error), { told: true });
  return found;
}
const count = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
const plural = { study: "studies" };
const many = (n, noun) => (n !== 1 && plural[noun] ? `${n} ${plural[noun]}` : count(n, noun));
const amount = (v) => (v === null || v === undefined ? "\u2013" : precise(v));
function ago(seconds) {
  if (seconds === null) return "not begun";
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds / 3600)} h ago`;
}
function table(host, heads, rows) {
  renew(host,
    html("thead", {}, html("tr", {}, ...heads.map((head) => html("th", { scope: "col" }, head)))),
    html("tbody", {}, ...rows.map((cells) => html("tr", {}, ...cells.map((cell) => html("td", {}, cell))))));
}

// The list of runs, and their curves in one chart.
const chart = Chart(byId("run-chart"));
const cost = pills(byId("run-controls"), "run-cost", "Against", Object.keys(settings.costs).map((c, i) => [c, c, i === 0]), draw);
const logs = pills(byId("run-controls"), "run-logs", "Log axes", [["x", "x"], ["y", "y", true]], draw, "checkbox");

function look(id) {
  if (!looks.has(id)) {
    const taken = new Set([...looks].filter(([other]) => chosen.has(other)).map(([, place]) => place));
    let place = 0;
    while (taken.has(place)) place += 1;
    looks.set(id, place);
  }
  return settings.looks[looks.get(id) % settings.looks.length];
}
function title(run) {
  const step = run.step === null ? "" : `, \u03b1 = ${run.step}`;
  return `${run.label} (${run.method || "no round yet"}${run.method ? step : ""})`;
}
function listed() {
  const host = byId("list");
  const within = document.activeElement && host.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  table(host, ["run", "method", "rounds", "loss", "best", "evaluations", "failed", "state"], overview.runs.map((run) => {
    const box = html("input", { type: "checkbox", "data-key": `box ${run.id}`, "aria-label": `Show ${run.label} in the chart`,
      ...(chosen.has(run.id) ? { checked: "" } : {}) });
    box.addEventListener("change", () => {
      touched = true;
      if (box.checked) chosen.add(run.id);
      else { chosen.delete(run.id); looks.delete(run.id); }
      refresh();
    });
    const name = html("button", { type: "button", "data-key": `name ${run.id}` }, run.label);
    name.addEventListener("click", () => select(run.id));
    const state = run.problem ? html("span", { class: "bad" }, run.problem)
      : run.ended ? "ended" : `${run.whole ? "" : "reading; "}${ago(run.age)}`;
    return [html("label", {}, box, name), run.method ? `${run.method}, n = ${short(run.n)}` : run.kind,
      run.of ? `${run.rounds} of ${run.of}` : String(run.rounds), amount(run.loss ?? run.best_value), amount(run.best ?? run.best_value),
      short(Math.max(run.evaluations, run.values)), run.failed ? html("span", { class: "bad" }, short(run.failed)) : "0", state];
  }));
  host.querySelectorAll("tbody tr").forEach((row, i) => {
    if (overview.runs[i].id === current) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
  });
  if (within) [...host.querySelectorAll("[data-key]")].find((each) => each.dataset.key === within)?.focus({ preventScroll: true });
}
function draw() {
  const shown = overview.runs.filter((run) => chosen.has(run.id) && seen.has(run.id));
  const lines = shown.map((run) => {
    const y = numbers(seen.get(run.id).y);
    return { ...look(run.id), label: title(run), key: run.id, x: seen.get(run.id).x[cost.value], y, low: y, high: y };
  });
  const positive = lines.every((line) => line.y.every((v) => !(v <= 0)));
  chart.show({ live: true, lines, logX: logs.has("x"), logY: logs.has("y") && positive, xLabel: settings.costs[cost.value],
    xName: cost.value, yLabel: "loss" });
  byId("run-note").textContent = lines.length
    ? "The full objective at the rounds where it was evaluated. Resumed and torn journals are shown as far as they are whole."
    : "Choose runs in the list to see their curves.";
}

// One run: x at any round, who answered, what failed, what is open.
let wanted = null, showing = null, following = true, playing = null, subject = "";
const slider = byId("round");
function select(id) {
  current = id;
  chosen.add(id);
  const run = overview.runs.find((each) => each.id === id);
  another(run); // now: what is asked for before the answer counts for this run
  slider.max = run?.rounds ?? 0;
  refresh();
}
slider.addEventListener("input", () => {
  following = Number(slider.value) === Number(slider.max);
  point(Number(slider.value));
});
byId("play").addEventListener("click", () => {
  if (playing) return stop();
  if (Number(slider.value) === Number(slider.max)) slider.value = 0;
  following = false;
  byId("play").textContent = "\u2016";
  const step = Math.max(1, Math.round(Number(slider.max) / 100));
  playing = setInterval(() => {
    if (wanted !== null) return;
    if (Number(slider.value) >= Number(slider.max)) return stop();
    slider.value = Math.min(Number(slider.max), Number(slider.value) + step);
    point(Number(slider.value));
  }, 80);
});
// Another run is shown, or its journal has been begun anew: nothing of the last one may stay.
function another(run) {
  subject = `${run?.begun} ${run?.id}`;
  showing = wanted = null;
  if (playing) stop();
  following = true;
  byId("bars").replaceChildren();
  byId("point-note").textContent = byId("round-shown").textContent = "";
}
function stop() {
  clearInterval(playing);
  playing = null;
  following = Number(slider.value) === Number(slider.max);
  byId("play").textContent = "\u25b6";
}
// One request at a time; the last round that was wished for follows, also that of another run.
let asking = false;
async function point(round) {
  byId("round-shown").textContent = round;
  wanted = round;
  if (asking) return;
  asking = true;
  while (wanted !== null) {
    const of = subject, asked = wanted;
    try {
      const found = await ask("point", { id: current, round: asked });
      if (subject !== of) continue;
      if (found.round === asked) {
        drawPoint(found);
        showing = asked;
        if (wanted === asked) wanted = null;
      } else byId("point-note").textContent = `replaying: round ${found.round} of ${asked}`;
    } catch (error) {
      if (subject !== of) continue;
      byId("bars").replaceChildren();
      byId("point-note").textContent = error.told ? error.message : "the server does not answer";
      wanted = null;
    }
  }
  asking = false;
}
function drawPoint(found) {
  const run = overview.runs.find((each) => each.id === current);
  const part = found.coordinates.length < found.n
    ? ` Shown are the first coordinates and those that have changed most.` : "";
  byId("point-note").textContent = `x after round ${found.round}: ${count(found.n, "variable")}, norm ${precise(found.norm)}, ` +
    `${precise(found.moved)} from the start, ${found.nonzero.toLocaleString("en")} not zero, digest ${found.digest}.${part}`;
  const width = Math.max(300, byId("bars").clientWidth), height = 190;
  const values = found.coordinates.flatMap(([, a, b]) => [a, b]).filter(Number.isFinite);
  const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
  const y = scale(low, high > low ? high : low + 1, height - 24, 8, false);
  const each = (width - 60) / found.coordinates.length;
  const every = Math.ceil(found.coordinates.length / Math.max(1, Math.floor(width / 60)));
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Coordinates of x" },
    svg("line", { class: "zero", x1: 50, x2: width - 8, y1: y(0), y2: y(0) }),
    ...[low, high].filter((v) => Math.abs(v) > 0.1 * (high - low)) // a small one would lie on the zero line
      .map((v) => svg("text", { x: 46, y: y(v) + 4, "text-anchor": "end" }, short(Number(v.toPrecision(3))))));
  found.coordinates.forEach(([i, start, value], place) => {
    const left = 52 + place * each, name = run?.names?.[i] ?? `x${i}`;
    picture.append(
      svg("rect", { class: "bar", x: left, width: Math.max(1, each - 2), y: Math.min(y(0), y(value)), height: Math.abs(y(value) - y(0)) },
        svg("title", {}, `${name} = ${value} (at the start ${start})`)),
      svg("line", { class: "start", x1: left, x2: left + Math.max(1, each - 2), y1: y(start), y2: y(start) }));
    if (place % every === 0) picture.append(svg("text", { x: left, y: height - 6 }, name.slice(0, 8)));
  });
  byId("bars").replaceChildren(picture);
}
function facts(run, curve) {
  const parts = [];
  const block = (name, ...inside) => parts.push(html("div", {}, html("h3", {}, name), ...inside));
  const rows = (heads, lines) => {
    const host = html("table", { class: "numbers right" });
    table(host, heads, lines);
    return html("div", { class: "scroll" }, host);
  };
  if (curve.workers.length) {
    const more = curve.more_workers ? html("p", { class: "note" }, `and ${count(curve.more_workers, "worker")} more`) : "";
    block(`Who answered (${short(curve.last_answers)} in the last round)`,
      rows(["worker", "answers", "last round"], curve.workers.map(([worker, site, answers, last]) =>
        [site ? `${worker}, ${site}` : String(worker), `${answers} of ${curve.rounds}`, String(last)])), more);
  }
  if (curve.open && !run.ended) {
    const named = curve.open.slice(0, 12).join(", ") + (curve.open.length > 12 ? ", \u2026" : "");
    block(`Open trials: ${curve.open.length}`, html("p", {}, named || "none"),
      html("p", { class: "note" }, "Values without which the next round cannot end."));
  }
  if (run.failed) {
    block(`Failures: ${run.failed}`, curve.failures.length
      ? rows(["trial", "reason"], curve.failures.map(([id, reason]) => [id, reason]))
      : html("p", {}, "Values that were NaN or infinite; they count as rejected steps."));
  }
  if (run.ended) block("End", html("p", {}, run.ended));
  if (curve.torn) block("Incomplete", html("p", {}, `${count(curve.torn, "byte")} at the end of the journal are no whole record (yet).`));
  renew(byId("facts"), ...parts);
}

// Studies, with the curves of their report.
let study = null, curves = null, stamp = "", shownStudy = "";
async function studies() {
  byId("studies").hidden = !overview.studies.length;
  byId("study-title").textContent = overview.studies.length === 1 ? overview.studies[0].label : "Studies";
  if (!overview.studies.length) return;
  if (!study) study = choose(byId("study-choice"), "Study", [], () => { stamp = ""; studies(); });
  refill(study, overview.studies.map((each) => [each.id, each.label]));
  const id = study.value, found = await ask("study", { id, seen: shownStudy === id ? stamp : "" });
  if (found.same || study.value !== id) return;
  [stamp, shownStudy] = [found.stamp, id];
  table(byId("progress"), ["item", "cases", "done", "failed"], found.progress.map((p) => [p.item, String(p.cases), String(p.done), String(p.failed)]));
  byId("study-note").textContent = found.problem || (found.running ? `${count(found.running, "case")} running.` : "") +
    (found.failures?.length ? ` Failed: ${found.failures.map(([error, n]) => `${error} (${n})`).join("; ")}` : "");
  byId("study-card").hidden = !found.report?.items.length;
  if (byId("study-card").hidden) return;
  if (curves && curves.id === id) curves.show(found.report);
  else {
    for (const name of ["controls", "chart"]) byId(name).replaceChildren();
    curves = Object.assign(Curves(found.report), { id });
  }
}

async function refresh() {
  try {
    overview = await ask("overview");
    const there = new Set(overview.runs.map((run) => run.id));
    for (const id of [...chosen]) if (!there.has(id)) chosen.delete(id);
    if (!touched) // the latest runs, until somebody chooses
      for (const run of overview.runs.slice(0, 6)) if (chosen.size < 6) chosen.add(run.id);
    if (!there.has(current)) current = overview.runs[0]?.id ?? null;
    for (const run of overview.runs) {
      const old = seen.get(run.id), { begun, end } = run;
      if ((chosen.has(run.id) || run.id === current) && (old?.begun !== begun || old.end !== end))
        seen.set(run.id, { ...(await ask("run", { id: run.id })), begun, end });
    }
    byId("title").textContent = `desopt watch: ${overview.folder}`;
    byId("state").textContent = `${many(overview.runs.length, "run")}, ${many(overview.studies.length, "study")}` +
      (overview.left_out ? "; there are more, which were written earlier" : "") +
      (overview.runs.length + overview.studies.length ? "" : ". Start one with journal=FILE in this folder, desopt run or desopt suite.");
    byId("runs").hidden = !overview.runs.length;
    listed();
    draw();
    const run = overview.runs.find((each) => each.id === current), curve = seen.get(current);
    if (subject !== `${run?.begun} ${run?.id}`) another(run);
    byId("one").hidden = !run || !curve;
    if (run && curve) {
      byId("one-title").textContent = run.label;
      slider.max = curve.rounds;
      if (following) slider.value = curve.rounds;
      if (following && showing !== curve.rounds && wanted === null && run.rounds) point(curve.rounds);
      facts(run, curve);
    }
    await studies();
  } catch (error) {
    byId("state").textContent = error.told ? error.message : "The server does not answer; trying again.";
  }
}
let waiting = false;
async function tick() {
  if (waiting || document.hidden) return;
  waiting = true;
  await refresh();
  waiting = false;
}
setInterval(tick, 1000);
document.addEventListener("visibilitychange", tick);
tick();
