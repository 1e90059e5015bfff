// Hides rows of tables by the choices of a form: `name` of a control -> the row's `data-name`; a number is the most that is shown.
(() => {
  const form = document.querySelector("form.choices");
  if (!form) return;
  const rows = [...document.querySelectorAll("tr[data-choice]")], controls = [...form.querySelectorAll("[name]")];

  function shown(row) {
    return controls.every((control) => {
      const own = row.dataset[control.name];
      if (control.value === "") return true;
      return control.type === "number" ? Number(own) <= Number(control.value) : own === control.value;
    });
  }
  form.addEventListener("input", () => {
    let count = 0;
    for (const row of rows) {
      const keep = shown(row);
      row.classList.toggle("left-out", !keep);
      count += keep;
    }
    form.querySelector("output").textContent = count + " of " + rows.length + " rows";
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
})();
