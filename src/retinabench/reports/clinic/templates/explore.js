"use strict";
// Shows texts that are in the page already; nothing is computed here. Without scripts the section stays hidden.
(() => {
  const MOST = 200;
  const data = JSON.parse(document.getElementById("policies").textContent);
  const part = (name) => document.getElementById("explore" + (name ? "-" + name : ""));
  const [sets, groups, referral, threshold] = ["set", "group", "referral", "threshold"].map(part);
  const state = { set: 0, group: 0, threshold: data.frozen[0], referral: data.frozen[1] };

  function options(select, texts) {
    select.replaceChildren(...texts.map((text, k) => new Option(text, k)));
  }
  function cells(row, texts) {
    texts.forEach((text, k) => {
      const cell = document.createElement(k ? "td" : "th");
      if (!k) cell.scope = "row";
      cell.textContent = text;
      row.append(cell);
    });
    return row;
  }
  function rows(body, texts) {
    body.replaceChildren(...texts.map((row) => cells(document.createElement("tr"), row)));
  }

  function show() {
    const set = data.sets[state.set], group = set.groups[state.group];
    const [i, j] = [state.threshold, state.referral], [a, b] = data.frozen;
    const here = group.cells[i][j], frozen = group.cells[a][b];
    sets.value = state.set;
    groups.value = state.group;
    referral.value = j;
    threshold.value = i;
    part("referral-text").textContent = data.referrals[j] + (j === b ? " (frozen)" : "");
    part("threshold-text").textContent = data.thresholds[i] + (i === a ? " (frozen)" : "");
    referral.setAttribute("aria-valuetext", data.referrals[j]);
    threshold.setAttribute("aria-valuetext", data.thresholds[i]);
    rows(part("rows"), data.rows.map((name, k) => [name, here[k], frozen[k]]));
    const missed = set.images.filter(([, , , , called, from]) => i >= called && j < from[i]);
    const listed = missed.slice(0, MOST), all = set.missed[i][j];
    part("count").textContent = "Referable images missed, of all " + set.label.toLowerCase() + " images: " + all
      + (listed.length < all ? " (" + listed.length + " are listed)" : "");
    rows(part("missed"), listed.map(([id, patient, grade, prob]) => [id, patient, grade ?? "–", prob]));
  }
  function moved() {
    show();
    history.replaceState(null, "", "#explore=" + [state.set, state.group, state.threshold, state.referral].join(","));
  }
  function chooseSet(number) {
    state.set = number;
    state.group = 0;
    options(groups, data.sets[number].groups.map((one) => one.name));
  }

  const link = /^#explore=(\d+),(\d+),(\d+),(\d+)$/.exec(location.hash);
  options(sets, data.sets.map((one) => one.label));
  chooseSet(0);
  referral.max = data.referrals.length - 1;
  threshold.max = data.thresholds.length - 1;
  if (link) {
    const [set, group, i, j] = link.slice(1).map(Number);
    if (set < data.sets.length) chooseSet(set);
    if (group < data.sets[state.set].groups.length) state.group = group;
    if (i <= threshold.max) state.threshold = i;
    if (j <= referral.max) state.referral = j;
  }
  sets.addEventListener("change", () => { chooseSet(Number(sets.value)); moved(); });
  groups.addEventListener("change", () => { state.group = Number(groups.value); moved(); });
  for (const [name, control] of [["referral", referral], ["threshold", threshold]])
    control.addEventListener("input", () => { state[name] = Number(control.value); moved(); });
  document.getElementById("controls").addEventListener("reset", (event) => {
    event.preventDefault();
    [state.threshold, state.referral] = data.frozen;
    moved();
  });
  part("").hidden = false;
  show();
  if (link) part("").scrollIntoView();
})();
