// Sorts and filters tables. It creates its controls itself, so that a page without scripts has no dead controls.
"use strict";
(() => {
  const text = (cell) => cell.textContent.trim();
  const number = (cell) => (cell.dataset.sort ? Number(cell.dataset.sort) : null);
  const compare = (one, other) => {
    const [first, second] = [number(one), number(other)];
    if (first === null && second === null) return text(one).localeCompare(text(other), "en", { numeric: true });
    return first === null ? Infinity : second === null ? -Infinity : first - second;
  };

  const sortable = (table) => {
    const body = table.tBodies[0];
    const original = [...body.rows];
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      const name = text(head.querySelector("a, .name") || head);
      const show = (order) => {
        button.textContent = { ascending: "▲", descending: "▼", none: "↕" }[order];
        button.setAttribute("aria-label", `sort by ${name}`);
        head.setAttribute("aria-sort", order);
      };
      show("none");
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const next = now === "none" ? "descending" : now === "descending" ? "ascending" : "none";
        for (const other of table.tHead.rows[0].cells) if (other !== head && other.show) other.show("none");
        show(next);
        const sign = next === "descending" ? -1 : 1;
        const rows = next === "none" ? original : [...original].sort((one, other) => {
          const order = compare(one.cells[column], other.cells[column]);
          return Number.isFinite(order) ? sign * order : order > 0 ? 1 : -1;
        });
        body.append(...rows);
      });
      head.show = show;
      head.insertBefore(button, head.querySelector(".direction"));
    });
  };

  const labeled = (words, control) => {
    const label = document.createElement("label");
    label.append(words, control);
    return label;
  };

  const filterable = (table) => {
    const bar = document.createElement("div");
    bar.className = "filters";
    const words = document.createElement("input");
    words.type = "search";
    bar.append(labeled("Show rows with ", words));
    const verdicts = [...new Set([...table.querySelectorAll("td[data-verdict]")].map((cell) => cell.dataset.verdict))].sort();
    const chosen = document.createElement("select");
    if (verdicts.length > 1) {
      for (const verdict of ["anything", ...verdicts]) chosen.append(new Option(verdict, verdict));
      bar.append(labeled("and a result that is ", chosen));
    }
    const count = document.createElement("span");
    count.setAttribute("role", "status");
    bar.append(count);
    const apply = () => {
      const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
      const rows = [...table.tBodies[0].rows];
      for (const row of rows) {
        const content = text(row).toLowerCase();
        const hasVerdict = chosen.value === "" || chosen.value === "anything"
          || [...row.querySelectorAll("td[data-verdict]")].some((cell) => cell.dataset.verdict === chosen.value);
        row.hidden = !(hasVerdict && wanted.every((word) => content.includes(word)));
      }
      const shown = rows.filter((row) => !row.hidden).length;
      count.textContent = shown < rows.length ? `${shown} of ${rows.length} rows` : "";
    };
    words.addEventListener("input", apply);
    chosen.addEventListener("change", apply);
    table.parentElement.before(bar);
  };

  const open = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let each = target; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
    if (target) target.scrollIntoView();
  };

  // A chart that is wider than the screen scrolls, so the keyboard must be able to focus it.
  const reachable = () => {
    for (const box of document.querySelectorAll("figure > .scroll:not([role])")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    if (!table.tBodies[0] || table.tBodies[0].rows.length < 2) continue;
    sortable(table);
    filterable(table);
  }
  reachable();
  addEventListener("resize", reachable);
  addEventListener("hashchange", open);
  addEventListener("beforeprint", () => document.querySelectorAll("details.printed").forEach((each) => { each.open = true; }));
  open();
})();
