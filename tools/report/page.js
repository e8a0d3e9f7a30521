// Lets one look closer at the curves of a page: zoom, smoothing, values under the pointer, time instead of steps.
// The page says all of it without this script, too; nothing here makes markup of a text.
"use strict";
(() => {
  const root = document.documentElement;
  addEventListener("error", (event) => { root.dataset.error = String(event.message); });
  document.addEventListener("securitypolicyviolation", (event) => { root.dataset.violation = event.violatedDirective; });

  // As in tools/report/page.cpp.
  const width = 720, height = 220, left = 62, right = 24, top = 10, bottom = 26;
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const view = { byTime: false, smooth: 0, log: false, from: null, to: null };
  const drawn = [];

  const svg = (name, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const html = (name, attributes, text) => {
    const element = document.createElement(name);
    Object.assign(element, attributes);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const number = (value) => value === null ? "not finite" : Number.isInteger(value) && Math.abs(value) < 1e9 ? String(value) : String(Number(value.toPrecision(6)));
  const fewPoints = 12;  // of which each is drawn as a dot
  const tickText = (value) => {
    for (const [unit, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (Math.abs(value) >= (unit > 1e3 ? unit : 10 * unit)) return number(value / unit) + name;
    return number(value);
  };
  const x = (point) => point[view.byTime ? 1 : 0];

  // An average that forgets, so weighted that its beginning is not drawn to zero.
  const smoothed = (points) => {
    if (view.smooth === 0) return points;
    let sum = 0, weight = 0;
    return points.map((point) => {
      if (point[2] === null) return point;
      sum = view.smooth * sum + (1 - view.smooth) * point[2];
      weight = view.smooth * weight + (1 - view.smooth);
      return [point[0], point[1], sum / weight];
    });
  };

  const rangeOf = (values) => {
    let low = Infinity, high = -Infinity;
    for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
    if (low > high) return [0, 1];
    const room = low === high ? (Math.abs(low) || 1) * 0.1 : 0;
    return [low - room, high + room];
  };
  const ticks = (low, high, count, least = 0) => {
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = Math.max(least, [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => raw <= candidate));
    const list = [];
    for (let at = Math.ceil(low / step) * step; at <= high; at += step) list.push(Math.abs(at) < step * 1e-9 ? 0 : at);
    return list;
  };

  class Drawn {
    constructor(chart) {
      this.chart = chart;
      this.figure = document.getElementById("chart-" + chart.id);
      this.svg = this.figure.querySelector("svg");
      this.axes = this.svg.querySelector(".axes");
      this.curves = this.svg.querySelector(".curves");
      this.cursor = svg("line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" });
      this.svg.append(this.cursor);
      this.readout = html("output", { className: "readout" });
      this.readout.setAttribute("aria-live", "polite");
      this.svg.after(this.readout);
      this.svg.setAttribute("tabindex", "0");
      this.listen();
    }

    height(value) { return view.log ? Math.log10(value) : value; }
    visible(value) { return value !== null && (!view.log || value > 0); }
    sx(value) { return left + (value - this.xs[0]) / (this.xs[1] - this.xs[0]) * (width - left - right); }
    sy(value) { return height - bottom - (this.height(value) - this.ys[0]) / (this.ys[1] - this.ys[0]) * (height - top - bottom); }

    draw() {
      this.whole = rangeOf(this.chart.curves.flatMap((curve) => curve.points.map(x)));
      this.xs = [view.from ?? this.whole[0], view.to ?? this.whole[1]];
      this.shown = this.chart.curves.map((curve) => smoothed(curve.points));
      const inside = (point) => x(point) >= this.xs[0] && x(point) <= this.xs[1] && this.visible(point[2]);
      this.ys = rangeOf(this.shown.flat().filter(inside).map((point) => this.height(point[2])));
      this.curves.replaceChildren();
      this.chart.curves.forEach((curve, i) => {
        if (view.smooth > 0) this.curves.append(svg("path", { class: "curve raw c" + i, d: this.path(curve.points, inside) }));
        this.curves.append(svg("path", { class: "curve c" + i, d: this.path(this.shown[i], inside) }));
        if (curve.points.length <= fewPoints)
          for (const point of this.shown[i].filter(inside))
            this.curves.append(svg("circle", { class: "f" + i, cx: this.sx(x(point)).toFixed(1), cy: this.sy(point[2]).toFixed(1), r: 3 }));
      });
      this.drawAxes();
    }

    path(points, inside) {
      let text = "", length = 0;
      const endLine = () => { if (length === 1) text += "m-3 0h6"; length = 0; };
      for (const point of points) {
        if (!inside(point)) { endLine(); continue; }
        text += (length++ > 0 ? "L" : "M") + this.sx(x(point)).toFixed(1) + " " + this.sy(point[2]).toFixed(1);
      }
      endLine();
      return text;
    }

    drawAxes() {
      this.axes.replaceChildren();
      for (const at of ticks(this.ys[0], this.ys[1], 4)) {
        const value = view.log ? 10 ** at : at, y = this.sy(value);
        this.axes.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y, y2: y }));
        this.axes.append(svg("text", { class: "tick y", x: left - 6, y: y }, tickText(value)));
      }
      ticks(this.xs[0], this.xs[1], 7, view.byTime ? 0 : 1).forEach((at, i) =>
        this.axes.append(svg("text", { class: "tick x", x: this.sx(at), y: height - 8 },
                             view.byTime ? number(at) + " s" : (i === 0 ? "step " : "") + number(at))));
    }

    // The point of each curve nearest to a place on the axis.
    point(at) {
      this.at = Math.min(this.xs[1], Math.max(this.xs[0], at));
      const words = this.chart.curves.map((curve, i) => {
        let best = -1;
        curve.points.forEach((point, n) => { if (best < 0 || Math.abs(x(point) - this.at) < Math.abs(x(curve.points[best]) - this.at)) best = n; });
        if (best < 0) return curve.run + ": none";
        const point = curve.points[best], smooth = view.smooth > 0 ? " (smooth " + number(this.shown[i][best][2]) + ")" : "";
        return (charts[0].curves.length > 1 ? curve.run + ", " : "") + "step " + point[0] + ": " + number(point[2]) + smooth;
      });
      this.cursor.setAttribute("x1", this.sx(this.at));
      this.cursor.setAttribute("x2", this.sx(this.at));
      this.cursor.setAttribute("visibility", "visible");
      this.readout.textContent = words.join(" · ");
    }

    place(event) {
      const box = this.svg.getBoundingClientRect();
      const at = (event.clientX - box.left) / box.width * width;
      return this.xs[0] + (at - left) / (width - left - right) * (this.xs[1] - this.xs[0]);
    }

    zoom(factor, around) {
      const span = (this.xs[1] - this.xs[0]) * factor, share = (around - this.xs[0]) / (this.xs[1] - this.xs[0]);
      view.from = Math.max(this.whole[0], around - share * span);
      view.to = Math.min(this.whole[1], view.from + span);
      if (view.to - view.from >= this.whole[1] - this.whole[0]) view.from = view.to = null;
      drawAll();
    }

    listen() {
      let began = null;
      this.svg.addEventListener("pointermove", (event) => this.point(this.place(event)));
      this.svg.addEventListener("pointerdown", (event) => { began = this.place(event); });
      this.svg.addEventListener("pointerup", (event) => {
        const ended = this.place(event), from = Math.min(began, ended), to = Math.max(began, ended);
        if (began !== null && to - from > (this.xs[1] - this.xs[0]) * 0.02) { view.from = from; view.to = to; drawAll(); }
        began = null;
      });
      this.svg.addEventListener("dblclick", () => { view.from = view.to = null; drawAll(); });
      this.svg.addEventListener("keydown", (event) => {
        const span = this.xs[1] - this.xs[0], at = this.at ?? this.xs[0];
        const actions = {
          ArrowLeft: () => this.point(at - span / 100), ArrowRight: () => this.point(at + span / 100),
          Home: () => this.point(this.xs[0]), End: () => this.point(this.xs[1]),
          "+": () => this.zoom(0.5, at), "-": () => this.zoom(2, at), 0: () => { view.from = view.to = null; drawAll(); },
        };
        if (!(event.key in actions)) return;
        event.preventDefault();
        actions[event.key]();
      });
    }
  }

  const drawAll = () => { for (const one of drawn) one.draw(); };

  const addControls = () => {
    const controls = document.getElementById("controls");
    const control = (text, input, change) => {
      const label = html("label", {}, text + " ");
      label.append(input);
      input.addEventListener("input", () => { change(input); drawAll(); });
      controls.append(label);
    };
    const axis = html("select", {});
    axis.append(html("option", { value: "step" }, "steps"), html("option", { value: "time" }, "time"));
    control("over", axis, (input) => { view.byTime = input.value === "time"; view.from = view.to = null; });
    control("smoothing", html("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: 0 }), (input) => { view.smooth = Number(input.value); });
    control("logarithmic", html("input", { type: "checkbox" }), (input) => { view.log = input.checked; });
    const reset = html("button", { type: "button" }, "whole run");
    reset.addEventListener("click", () => { view.from = view.to = null; drawAll(); });
    controls.append(reset, html("span", {}, "drag over a curve, or + and - with the keyboard, to zoom"));
    controls.addEventListener("submit", (event) => event.preventDefault());
    controls.hidden = false;
  };

  for (const chart of charts) drawn.push(new Drawn(chart));
  if (charts.length > 0) addControls();
  drawAll();
  root.dataset.ready = "yes";
})();
