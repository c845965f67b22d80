"use strict";
// The page draws what the data says; which numbers stand in which chart was decided when it was made.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const state = { hidden: new Set(), smoothing: 0, log: false, axis: "step" };
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);

  function make(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "class") node.className = value;
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }

  const variable = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const colour = (index) => `var(--c${index % 8})`;
  const dot = (index) => make("span", { class: "dot", style: `background:${colour(index)}` });

  // Numbers, as people read them.
  const units = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]];
  function count(value) {
    if (Number.isInteger(value) && Math.abs(value) < 1e6) return value.toLocaleString("en");
    const unit = units.find(([size]) => Math.abs(value) >= size);
    if (!unit) return plain(value);
    return plain(unit[0] === 1e4 ? value / 1e3 : value / unit[0]) + " " + unit[1];
  }
  function plain(value) {
    const size = Math.abs(value);
    if (value === 0) return "0";
    if (size >= 1e6 || size < 1e-3) return Number(value.toPrecision(3)).toExponential().replace("e+", "e");
    return String(Number(value.toPrecision(4)));
  }
  function duration(seconds) {
    if (seconds > 0 && seconds < 1) return `${Number((1000 * seconds).toPrecision(3))} ms`;
    if (seconds < 60) return `${plain(Number(seconds.toPrecision(3)))} s`;
    const minutes = Math.round(seconds / 60);
    if (minutes < 60) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
    const days = Math.floor(minutes / 1440);
    return (days ? `${days} d ` : "") + `${Math.floor(minutes / 60) % 24} h ${minutes % 60} min`;
  }
  const percent = (share) => `${Number((100 * share).toPrecision(3))} %`;
  function written(value, kind) {
    if (value === null || value === undefined) return "–";
    if (typeof value === "string") return value;
    if (kind === "%") return percent(value);
    if (kind === "s") return duration(value);
    return kind === "count" ? count(value) : plain(value);
  }

  // Tables that are sorted by a click on a column's head.
  function table(columns, rows) {
    const body = make("tbody", {}, ...rows.map((row) => row.node));
    const heads = columns.map((column, index) =>
      make("th", { class: column.number ? "number" : "", tabindex: "0", scope: "col" }, column.title));
    const sort = (index) => {
      const up = heads[index].getAttribute("aria-sort") !== "ascending";
      heads.forEach((head) => head.removeAttribute("aria-sort"));
      heads[index].setAttribute("aria-sort", up ? "ascending" : "descending");
      const compare = (a, b) => {
        const [x, y] = [a.keys[index], b.keys[index]];
        if (x === null || y === null) return (x === null) - (y === null); // what isn't there stands last
        return (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y))) * (up ? 1 : -1);
      };
      body.append(...[...rows].sort(compare).map((row) => row.node));
    };
    heads.forEach((head, index) => {
      head.addEventListener("click", () => sort(index));
      head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(index); });
    });
    return make("div", { class: "card scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body));
  }
  const row = (keys, cells) => ({ keys, node: make("tr", {}, ...cells) });
  const runCell = (index) => make("td", { class: "name" }, dot(index), data.runs[index].name);

  function summary() {
    const columns = [{ title: "run" }, ...data.summary.map((c) => ({ title: c.title, number: true }))];
    byId("summary").append(table(columns, data.runs.map((run, index) => row(
      [run.name, ...data.summary.map((c) => c.cells[index])],
      [runCell(index), ...data.summary.map((c) => make("td", { class: "number" }, written(c.cells[index], c.kind)))]))));
  }

  function fill(id, ...nodes) {
    if (nodes.length) byId(id).append(...nodes);
    else byId(id).remove();
  }

  const causeColours = { step: 2, evaluation: 0, lost: 1, checkpoint: 3, compile: 4, input: 5, down: 6, rewind: 7, start: 8, other: 9 };
  function goodput() {
    const bars = data.runs.map((run, index) => {
      const causes = Object.entries(run.goodput);
      const total = causes.reduce((sum, [, seconds]) => sum + seconds, 0);
      if (!total) return null;
      const shade = (cause, at) => `var(--c${causeColours[cause] ?? at % 10})`;
      return make("div", {},
        make("h3", {}, dot(index), ` ${run.name} `, make("small", { class: "mono" }, duration(total))),
        make("div", { class: "bar", role: "img", style: "margin-top:8px", "aria-label": causes.map(([c, s]) => `${c} ${percent(s / total)}`).join(", ") },
          ...causes.map(([cause, seconds], at) => make("i", { style: `flex:${seconds};background:${shade(cause, at)}`, title: cause }))),
        make("div", { class: "causes" }, ...causes.map(([cause, seconds], at) => make("span", {},
          make("span", { class: "dot", style: `background:${shade(cause, at)}` }),
          `${cause === "step" ? "productive" : cause} ${percent(seconds / total)}`, make("small", {}, duration(seconds))))));
    }).filter(Boolean);
    fill("goodput", ...(bars.length ? [make("div", { class: "card bars" }, ...bars)] : []));
  }

  function events() {
    const rows = data.runs.flatMap((run, index) => run.events.map(([step, text]) => row(
      [run.name, step, text], [runCell(index), make("td", { class: "number" }, count(step)), make("td", {}, text)])));
    fill("events", ...(rows.length ? [table([{ title: "run" }, { title: "step", number: true }, { title: "what" }], rows)] : []));
  }

  function samples() {
    const cards = data.runs.flatMap((run, index) => run.samples.map((sample) => make("div", { class: "card sample" },
      make("p", {}, dot(index), ` ${run.name}, step ${count(sample.step)}`),
      make("pre", {}, make("span", { class: "prompt" }, sample.prompt), sample.text))));
    fill("samples", ...(cards.length ? [make("div", { class: "grid" }, ...cards)] : []));
  }

  function comparison(id, facts, mark) {
    const columns = [{ title: "" }, ...data.runs.map((run) => ({ title: run.name }))];
    const rows = facts.map(([name, values]) => {
      const differs = mark && values.some((value) => value !== values[0]);
      return row([name, ...values], [make("td", { class: "mono" }, name), ...values.map((value) =>
        make("td", { class: `mono ${differs ? "differs" : ""} ${value === null ? "none" : ""}` }, value === null ? "–" : value))]);
    });
    fill(id, ...(rows.length ? [table(columns, rows)] : []));
  }

  function starts() {
    const rows = data.runs.flatMap((run, index) => run.starts.map((start) => row(
      [run.name, start.time, start.host, (start.argv || []).join(" ")],
      [runCell(index), make("td", { class: "number" }, (start.time || "").replace("T", " ").replace("+00:00", " UTC")), make("td", {}, start.host || ""),
        make("td", { class: "mono command" }, (start.argv || []).join(" "), ...(start.changes || []).map((line) => make("div", { class: "none" }, line)))])));
    fill("starts", ...(rows.length ? [table([{ title: "run" }, { title: "time", number: true }, { title: "host" }, { title: "command" }], rows)] : []));
  }

  function configs() {
    byId("configs").append(make("div", { class: "card texts" }, ...data.runs.map((run, index) => make("details", {},
      make("summary", {}, dot(index), ` ${run.name} `), make("pre", {}, run.config)))));
  }

  // Charts.
  const plots = new Map(); // by the element that a chart is drawn in
  const together = uPlot.sync("steps");

  function along(steps, run) {
    const axis = state.axis === "step" ? null : run.axes[state.axis];
    if (!axis) return steps;
    let at = 0;
    return steps.map((step) => {
      while (at < axis.x.length - 2 && axis.x[at + 1] < step) at += 1;
      const [x0, x1, y0, y1] = [axis.x[at], axis.x[at + 1], axis.y[at], axis.y[at + 1]];
      return x1 > x0 ? y0 + (y1 - y0) * (step - x0) / (x1 - x0) : y0;
    });
  }

  // An exponential mean whose weights add up to one from the first point on.
  function smoothed(values, weight) {
    let sum = 0, total = 0;
    return values.map((value) => {
      if (value === null) return null;
      sum = sum * weight + value * (1 - weight);
      total = total * weight + (1 - weight);
      return sum / total;
    });
  }

  const positive = (values) => state.log ? values.map((value) => value > 0 ? value : null) : values;

  function translucent(css, alpha) {
    const hex = css.replace("#", "");
    return `rgb(${parseInt(hex.slice(0, 2), 16)} ${parseInt(hex.slice(2, 4), 16)} ${parseInt(hex.slice(4, 6), 16)} / ${alpha})`;
  }

  function columnsOf(chart) {
    const columns = [];
    for (const line of chart.lines) {
      if (state.hidden.has(line.run)) continue;
      const run = data.runs[line.run];
      const x = along(line.x, run);
      const ink = variable(`--c${line.run % 8}`);
      const smooth = state.smoothing > 0 && chart.noisy && !line.dashed && line.x.length > 2;
      const label = [data.runs.length > 1 ? run.name : "", line.label].filter(Boolean).join(" ");
      if (line.low) {
        columns.push({ x, y: positive(line.high), edge: true }, { x, y: positive(line.low), edge: true, fill: translucent(ink, 0.13) });
      } else if (smooth) {
        columns.push({ x, y: positive(line.y), ink: translucent(ink, 0.28), width: 1 });
      }
      columns.push({ x, y: positive(smooth ? smoothed(line.y, state.smoothing) : line.y), ink, width: 1.75, dashed: line.dashed, label, shown: true, run: line.run });
    }
    return columns;
  }

  // uPlot wants rising steps; where a run was moved back in time, the later value of a step is the one that stands.
  function rising({ x, y }) {
    const byStep = new Map();
    x.forEach((step, index) => byStep.set(step, y[index]));
    const steps = [...byStep.keys()].sort((a, b) => a - b);
    return [steps, steps.map((step) => byStep.get(step))];
  }

  function range(chart, columns) {
    return (plot, low, high) => {
      const { min, max } = plot.scales.x;
      const zoomed = min != null && (min > plot.data[0][0] || max < plot.data[0].at(-1));
      if (state.log) return uPlot.rangeLog(low ?? 1, high ?? 10, 10, true);
      if (chart.settles && !zoomed) { // the first twentieth would flatten the rest
        const late = columns.flatMap((c) => c.y.slice(Math.ceil(c.y.length / 20))).filter((v) => v !== null);
        if (late.length) high = Math.min(high, Math.max(...late) * 1.02);
      }
      if (low === null || high === null) return [0, 1];
      if (low === high) return [low - Math.abs(low || 1) * 0.1, high + Math.abs(high || 1) * 0.1];
      return uPlot.rangeNum(low, high, 0.06, false);
    };
  }

  // A dotted line at each event.
  function marks(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.setLineDash([2 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.lineWidth = devicePixelRatio;
    data.runs.forEach((run, index) => {
      if (state.hidden.has(index)) return;
      ctx.strokeStyle = translucent(variable(`--c${index % 8}`), 0.7);
      for (const at of along(run.events.map(([step]) => step), run)) {
        const x = Math.round(plot.valToPos(at, "x", true));
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
      }
    });
    ctx.restore();
  }

  function nearest(column, index) {
    for (let at = index; at >= 0; at -= 1) if (column[at] !== undefined && column[at] !== null) return column[at];
    return null;
  }

  function draw(holder) {
    const { chart, values } = holder;
    plots.get(holder)?.destroy();
    plots.delete(holder);
    const columns = columnsOf(chart);
    values.replaceChildren();
    if (!columns.length) return;
    const aligned = uPlot.join(columns.map((column) => rising(column)), columns.map(() => columns.map(() => 1)));
    const quiet = variable("--quiet"), grid = variable("--grid");
    const number = (value) => written(value, chart.unit);
    const readout = (plot) => {
      const index = plot.cursor.idx;
      const at = index ?? aligned[0].length - 1;
      const entries = columns.map((column, i) => [column, nearest(plot.data[i + 1], at)]).filter(([c, v]) => c.shown && v !== null);
      values.replaceChildren(
        ...(index === null || index === undefined ? [] : [make("span", { class: "at" }, `${state.axis} ${count(aligned[0][index])}`)]),
        ...entries.slice(0, 9).map(([column, value]) => make("span", { style: `color:${colour(column.run)}` }, `${column.label} `, make("b", {}, number(value)))));
    };
    const font = "12px system-ui, sans-serif"; // uPlot reads whole pixels
    const axis = { stroke: quiet, font, grid: { stroke: grid, width: 1 }, ticks: { show: false } };
    const bands = columns.flatMap((column, i) => column.fill ? [{ series: [i, i + 1], fill: column.fill }] : []);
    plots.set(holder, new uPlot({
      width: holder.plot.clientWidth,
      height: holder.plot.clientHeight,
      legend: { show: false },
      padding: [8, 26, 0, 0],
      cursor: { y: false, sync: { key: together.key }, points: { size: 7 }, drag: { x: true, y: false } },
      scales: { x: { time: false }, y: { distr: state.log ? 3 : 1, range: range(chart, columns) } },
      axes: [
        { ...axis, size: 32, values: (_, ticks) => ticks.map((tick) => count(tick)), space: 70 },
        { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => tick === null ? "" : number(tick)) },
      ],
      series: [{}, ...columns.map((column) => column.edge
        ? { stroke: "transparent", points: { show: false }, spanGaps: false }
        : { stroke: column.ink, width: column.width, dash: column.dashed ? [6, 4] : undefined, points: { show: column.dashed && column.x.length < 40, size: 5, fill: column.ink } })],
      bands,
      hooks: { setCursor: [readout], draw: holder.wide ? [marks] : [], ready: [readout] },
    }, aligned, holder.plot));
  }

  const holders = [];
  const visible = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const holder = holders.find(({ plot }) => plot === entry.target);
      holder.seen = entry.isIntersecting;
      if (holder.seen && holder.stale) { holder.stale = false; draw(holder); }
    }
  }, { rootMargin: "300px" });
  const sized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const plot = plots.get(holders.find(({ plot }) => plot === target));
      if (plot && target.clientWidth && target.clientWidth !== plot.width) plot.setSize({ width: target.clientWidth, height: target.clientHeight });
    }
  });

  function redraw() {
    for (const holder of holders) {
      if (holder.seen) draw(holder);
      else holder.stale = true;
    }
  }

  function card(chart, wide) {
    const plot = make("div", { class: "plot", role: "img", "aria-label": `${chart.title} over ${state.axis}s` });
    const values = make("div", { class: "values" });
    const most = Math.max(...chart.lines.map((line) => line.per));
    const band = most > 1 ? `a point is the mean of ${count(most)} steps, the band their range` : "";
    const note = [chart.note, band, wide && data.runs.some((run) => run.events.length) ? "dotted: events" : ""].filter(Boolean).join("; ");
    const node = make("article", { class: `card chart ${wide ? "wide" : ""}` },
      make("div", { class: "top" }, make("h3", {}, chart.title), values), plot,
      note ? make("div", { class: "note" }, note) : null);
    holders.push({ chart, wide, plot, values, stale: true, seen: false });
    visible.observe(plot);
    sized.observe(plot);
    return node;
  }

  function charts() {
    const sections = new Map();
    for (const chart of data.charts) sections.set(chart.section, [...(sections.get(chart.section) || []), chart]);
    for (const [section, all] of sections) {
      if (!section) byId("charts").append(make("h2", {}, "Curves"), make("div", { class: "grid" }, ...all.map((chart, index) => card(chart, index === 0))));
      else byId("charts").append(make("details", { class: "more" },
        make("summary", {}, section, make("span", {}, ` · ${all.length} more ${all.length === 1 ? "chart" : "charts"}`)), make("div", { class: "grid" }, ...all.map((chart) => card(chart, false)))));
    }
  }

  function controls() {
    data.runs.forEach((run, index) => {
      const button = make("button", { type: "button", class: "run", "aria-pressed": "true", title: run.folder, onclick: () => {
        if (!state.hidden.delete(index)) state.hidden.add(index);
        button.setAttribute("aria-pressed", String(!state.hidden.has(index)));
        redraw();
      } }, dot(index), make("span", {}, run.name));
      byId("runs").append(button);
    });
    byId("smoothing").addEventListener("input", (event) => { state.smoothing = Number(event.target.value); redraw(); });
    byId("axis").addEventListener("change", (event) => { state.axis = event.target.value; redraw(); });
    for (const option of [...byId("axis").options]) {
      if (option.value !== "step" && !data.runs.every((run) => run.axes[option.value])) option.remove();
    }
    byId("log").addEventListener("click", () => { state.log = !state.log; byId("log").setAttribute("aria-pressed", String(state.log)); redraw(); });
    byId("theme").addEventListener("click", () => { theme(root.dataset.theme === "dark" ? "light" : "dark"); redraw(); });
  }

  function theme(name) {
    root.dataset.theme = name;
    byId("theme").textContent = name === "dark" ? "☀" : "☾";
  }

  theme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  byId("made").textContent = `${data.runs.length === 1 ? data.runs[0].folder : `${data.runs.length} runs`} · made ${data.made.replace("T", " ").replace("+00:00", " UTC")} by ax-recipes ${data.version}`;
  controls();
  summary();
  charts();
  goodput();
  events();
  samples();
  comparison("differences", data.differences, true);
  comparison("environment", data.environment, true);
  starts();
  configs();
})();
