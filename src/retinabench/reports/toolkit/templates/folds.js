// Opens the folded part that a link leads to, and all parts in print.
(() => {
  function reveal(hash) {
    const target = hash.length > 1 ? document.getElementById(decodeURIComponent(hash.slice(1))) : null;
    if (!target) return;
    for (let part = target; part; part = part.parentElement?.closest("details")) if (part.tagName === "DETAILS") part.open = true;
    const own = target.querySelector(":scope > details.fold");
    if (own) own.open = true;
    target.scrollIntoView();
  }

  const folds = [...document.querySelectorAll("details.fold")];
  if (folds.length > 1) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "unfold";
    button.textContent = "Open all parts";
    button.addEventListener("click", () => {
      const open = folds.some((part) => !part.open);
      for (const part of folds) part.open = open;
      button.textContent = open ? "Close all parts" : "Open all parts";
    });
    document.querySelector("header nav")?.append(button);
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="#"]');
    if (link) reveal(link.hash);
  });
  addEventListener("hashchange", () => reveal(location.hash));

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const part of closed) part.open = true;
  });
  addEventListener("afterprint", () => {
    for (const part of closed) part.open = false;
  });
  reveal(location.hash);
})();
