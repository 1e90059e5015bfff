// Shows texts and thumbnails that the page holds already; nothing is computed here. Without scripts the section stays hidden.
(() => {
  const source = document.getElementById("policies");
  if (!source) return;
  const LISTED = 200, SHOWN = 6;
  const data = JSON.parse(source.textContent);
  const part = (name) => document.getElementById("explore" + (name ? "-" + name : ""));
  const [models, sets, groups, referral, threshold] = ["model", "set", "group", "referral", "threshold"].map(part);
  const state = { model: 0, set: 0, group: 0, threshold: 0, referral: 0 };

  function options(select, texts) {
    select.replaceChildren(...texts.map((text, k) => new Option(text, k)));
  }
  function make(tag, text, kind) {
    const element = document.createElement(tag);
    element.textContent = text;
    if (kind) element.className = kind;
    return element;
  }
  // An interval stands below its number.
  function cell(tag, text) {
    const [, value, interval] = /^(.*?) (\[.*\])$/.exec(text) ?? [null, text, ""];
    const element = make(tag, value);
    if (interval) element.append(" ", make("span", interval, "interval"));
    return element;
  }
  function rows(body, texts) {
    body.replaceChildren(...texts.map((cells) => {
      const row = document.createElement("tr");
      row.append(...cells.map((text, k) => cell(k ? "td" : "th", String(text))));
      row.firstChild.scope = "row";
      return row;
    }));
  }
  function card([id, patient, grade, prob]) {
    const item = document.createElement("li"), text = make("div", "", "card");
    if (data.thumbnails[id]) {
      const image = new Image();
      image.src = data.thumbnails[id];
      image.alt = "Fundus image " + id;
      item.append(image);
    }
    const known = grade === null ? "Referable" : "Referable, grade " + grade;
    text.append(make("b", known), make("br", ""), make("span", "Missed: P = " + prob, "bad"), make("br", ""),
      make("span", id + (patient && patient !== id ? ", patient " + patient : ""), "id"));
    item.append(text);
    return item;
  }

  function show() {
    const model = data.models[state.model], set = model.sets[state.set], group = set.groups[state.group];
    const [i, j] = [state.threshold, state.referral], [a, b] = model.frozen;
    const here = group.cells[i][j], frozen = group.cells[a][b];
    models.value = state.model;
    sets.value = state.set;
    groups.value = state.group;
    referral.value = j;
    threshold.value = i;
    part("referral-text").textContent = model.referrals[j] + (j === b ? " (as stated)" : "");
    part("threshold-text").textContent = model.thresholds[i] + (i === a ? " (as stated)" : "");
    referral.setAttribute("aria-valuetext", model.referrals[j]);
    threshold.setAttribute("aria-valuetext", model.thresholds[i]);
    rows(part("rows"), data.rows.map((name, k) => [name, data.texts[here[k]], data.texts[frozen[k]]]));
    part("rows").parentNode.classList.toggle("stated", i === a && j === b);
    const missed = set.images.filter(([, , , , called, from, of]) =>
      i >= called && j < (from[i] ?? from[0]) && of.includes(state.group));
    const listed = missed.slice(0, LISTED), all = group.missed[i][j];
    part("count").textContent = "Referable images called healthy and not read, " + set.label.toLowerCase() + ", " + group.name + ": " + all;
    part("cards").replaceChildren(...missed.slice(0, SHOWN).map(card));
    part("details").hidden = listed.length <= SHOWN;
    part("listed").textContent = listed.length < all ? listed.length + " of them, the most severe first" : "All of them, the most severe first";
    rows(part("missed"), listed.map(([id, patient, grade, prob]) => [id, patient, grade ?? "–", prob]));
  }
  function moved() {
    show();
    const place = [state.model, state.set, state.group, state.threshold, state.referral];
    history.replaceState(null, "", "#explore=" + place.join(","));
  }
  function frozen() {
    [state.threshold, state.referral] = data.models[state.model].frozen;
  }
  function chooseSet(number) {
    state.set = number;
    state.group = 0;
    options(groups, data.models[state.model].sets[number].groups.map((one) => one.name));
  }
  function chooseModel(number) {
    const model = data.models[number], key = data.models[state.model].sets[state.set]?.key;
    state.model = number;
    options(sets, model.sets.map((one) => one.label));
    referral.max = model.referrals.length - 1;
    threshold.max = model.thresholds.length - 1;
    frozen();
    chooseSet(Math.max(0, model.sets.findIndex((one) => one.key === key)));
  }

  options(models, data.models.map((one) => one.name));
  part("who").hidden = data.models.length < 2;
  chooseModel(0);
  const link = /^#explore=(\d+),(\d+),(\d+),(\d+),(\d+)$/.exec(location.hash);
  if (link) {
    const [model, set, group, i, j] = link.slice(1).map(Number);
    if (model < data.models.length) chooseModel(model);
    const chosen = data.models[state.model];
    if (set < chosen.sets.length) chooseSet(set);
    if (group < chosen.sets[state.set].groups.length) state.group = group;
    if (i < chosen.thresholds.length) state.threshold = i;
    if (j < chosen.referrals.length) state.referral = j;
  }
  models.addEventListener("change", () => { chooseModel(Number(models.value)); moved(); });
  sets.addEventListener("change", () => { chooseSet(Number(sets.value)); moved(); });
  groups.addEventListener("change", () => { state.group = Number(groups.value); moved(); });
  for (const [name, control] of [["referral", referral], ["threshold", threshold]])
    control.addEventListener("input", () => { state[name] = Number(control.value); moved(); });
  part("reset").addEventListener("click", () => { frozen(); moved(); });
  part("").hidden = false;
  show();
  if (link) part("").scrollIntoView();
})();
