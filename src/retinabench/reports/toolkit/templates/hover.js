// Shows the texts of the points of figures: by pointing, by touch, or with the arrow keys; figures of one link together.
(() => {
  const SVG = "http://www.w3.org/2000/svg";

  function shape(tag, attributes, parent) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    parent.append(element);
    return element;
  }

  const figures = [...document.querySelectorAll("script.points")].map((source) => {
    const frame = source.closest("figure"), svg = frame.querySelector("svg"), data = JSON.parse(source.textContent);
    const readout = document.createElement("p");
    readout.className = "readout";
    readout.hidden = true;
    frame.append(readout);
    svg.tabIndex = 0;
    return { ...data, svg, readout, marked: shape("g", {}, svg), layer: shape("g", {}, svg), at: null, count: Math.max(...data.lines.map((line) => line.points.length)) };
  });

  function draw(figure, layer, places) {
    layer.replaceChildren();
    const [, , bottom, top] = figure.span;
    for (const [line, k] of places) {
      const point = line.points[k];
      if (!point) continue;
      shape("line", { x1: point[0], x2: point[0], y1: bottom, y2: top, class: "hover-line" }, layer);
      const dot = shape("circle", { cx: point[0], cy: point[1], r: 4, class: "hover-dot" }, layer);
      dot.style.fill = "var(--" + line.color + ")";
    }
  }

  function tell(figure, places, live) {
    const parts = [];
    const known = places.filter(([line, k]) => line.points[k]);
    if (known.length && figure.heads.length) parts.push(figure.heads[known[0][1]]);
    for (const [line, k] of known) {
      const dot = document.createElement("span");
      dot.className = "dot";
      dot.style.background = "var(--" + line.color + ")";
      parts.push(dot, line.name + ": " + line.texts[k]);
    }
    figure.readout.replaceChildren(...parts.map((one) => {
      if (one instanceof Node) return one;
      const text = document.createElement("span");
      text.textContent = one;
      return text;
    }));
    figure.readout.hidden = !known.length;
    if (live) figure.readout.setAttribute("aria-live", "polite"); else figure.readout.removeAttribute("aria-live");
  }

  function clear() {
    for (const figure of figures) {
      figure.layer.replaceChildren();
      figure.readout.hidden = true;
    }
  }

  function point(at, k) {
    const keys = new Map(at.lines.filter((line) => line.to.length).map((line) => [line.key, line.to[k]]));
    for (const figure of figures) {
      const places = figure.link === at.link && (figure.heads.length || figure === at)
        ? figure.lines.map((line) => [line, k])
        : figure.lines.filter((line) => line.to.length && keys.has(line.key)).map((line) => [line, keys.get(line.key)]);
      draw(figure, figure.layer, places);
      tell(figure, places, figure === at);
    }
    at.at = k;
  }

  function nearest(figure, event) {
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(figure.svg.getScreenCTM().inverse());
    let best = 0, least = Infinity;
    for (const line of figure.lines) line.points.forEach((found, k) => {
      const distance = found ? Math.abs(found[0] - place.x) : Infinity;
      if (distance < least) [best, least] = [k, distance];
    });
    return best;
  }

  for (const figure of figures) {
    figure.svg.addEventListener("pointermove", (event) => point(figure, nearest(figure, event)));
    figure.svg.addEventListener("pointerdown", (event) => point(figure, nearest(figure, event)));
    figure.svg.addEventListener("pointerleave", clear);
    figure.svg.addEventListener("blur", clear);
    figure.svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity }[event.key];
      if (event.key === "Escape") clear();
      if (!step) return;
      event.preventDefault();
      const from = figure.at ?? Math.floor(figure.count / 2);
      point(figure, Math.min(Math.max(from + step, 0), figure.count - 1));
    });
  }

  // The sliders mark their share referred and their decision threshold.
  function closest(values, wanted) {
    let best = -1;
    values.forEach((value, k) => { if (best < 0 || Math.abs(value - wanted) < Math.abs(values[best] - wanted)) best = k; });
    return best;
  }
  document.addEventListener("explored", (event) => {
    const { model, share, cut } = event.detail;
    for (const figure of figures) {
      const lines = figure.lines.filter((line) => line.name === model);
      const places = figure.link === "referral" && share !== null
        ? lines.map((line) => [line, Math.round(share * (figure.count - 1))])
        : lines.filter((line) => line.cuts.length).map((line) => [line, closest(line.cuts, cut)]);
      draw(figure, figure.marked, places);
    }
  });
})();
