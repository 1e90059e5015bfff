"use strict";
// Sorts the rows of tables by the button in each header, and filters long tables; no number is changed.
(() => {
  const FILTERED_FROM = 8; // rows

  function key(cell) {
    if (!cell) return null;
    const exact = cell.dataset.sort ?? cell.querySelector("[data-part=value]")?.dataset.value;
    if (exact !== undefined) return Number(exact);
    const text = cell.textContent.trim();
    if (text === "" || text === "–" || text === "undefined") return null;
    const number = /^([−+-]?[\d,]*\.?\d+)(\s*%|\s*\(.*)?$/.exec(text);
    return number ? Number(number[1].replace("−", "-").replaceAll(",", "")) : text;
  }

  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  }

  // The next order of a column: best or largest first for numbers, A first for text, then turned round, then as written.
  function following(header, isText) {
    const first = isText || header.textContent.includes("↓") ? "ascending" : "descending";
    const second = first === "ascending" ? "descending" : "ascending";
    return { none: first, [first]: second, [second]: "none" }[header.getAttribute("aria-sort")];
  }

  function sort(table, header, column) {
    const keyed = table.original.map((row) => [key(row.cells[column]), row]);
    const order = following(header, keyed.some(([found]) => typeof found === "string"));
    for (const other of table.headers) other.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", order);
    const sign = order === "descending" ? -1 : 1;
    const known = keyed.filter(([found]) => found !== null).sort(([a], [b]) => sign * compare(a, b));
    const rows = order === "none" ? table.original
      : [...known, ...keyed.filter(([found]) => found === null)].map(([, row]) => row);
    table.body.append(...rows, ...table.controls);
  }

  function sortable(table) {
    table.headers.forEach((header, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...(header.childNodes.length ? header.childNodes : ["Row"]));
      header.append(button);
      header.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => sort(table, header, column));
    });
  }

  function filtered(table, scroll) {
    const label = document.createElement("label"), input = document.createElement("input");
    const count = document.createElement("output");
    label.className = "filter";
    input.type = "search";
    label.append("Show rows with ", input, " ", count);
    scroll.before(label);
    input.addEventListener("input", () => {
      const wanted = input.value.trim().toLowerCase();
      let shown = 0;
      for (const row of table.original) {
        row.hidden = !row.textContent.toLowerCase().includes(wanted);
        shown += !row.hidden;
      }
      count.textContent = wanted ? shown + " of " + table.original.length : "";
    });
  }

  for (const scroll of document.querySelectorAll(".scroll")) {
    const element = scroll.querySelector("table");
    if (!element || element.classList.contains("fixed")) continue;
    const body = element.tBodies[0], rows = [...body.rows].filter((row) => row.cells.length > 1);
    const table = {
      body,
      headers: [...element.tHead.rows[0].cells],
      original: rows.filter((row) => !row.classList.contains("control")),
      controls: rows.filter((row) => row.classList.contains("control")),
    };
    if (table.original.length > 1) sortable(table);
    if (table.original.length >= FILTERED_FROM) filtered(table, scroll);
  }
})();
