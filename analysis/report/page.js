// A link opens what is folded around its target; a click on a heading sorts its table by that column: by number where a cell begins with one, else by text.
"use strict";
const open = (node) => {
  for (; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
};
const reach = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target) {
    open(target.querySelector(":scope > details.setting") || target);
    target.scrollIntoView();
  }
};
addEventListener("hashchange", reach);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => (one.open = true)));
reach();
for (const table of document.querySelectorAll("table")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    heading.classList.add("sortable");
    heading.tabIndex = 0;
    const sort = () => {
      const descending = heading.getAttribute("aria-sort") !== "descending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const body = table.tBodies[0];
      const keyed = [...body.rows].map((row) => [row, row.cells[column].textContent.trim()]);
      const number = (text) => (/^-?\d/.test(text) ? parseFloat(text) : NaN);
      keyed.sort(([, a], [, b]) => {
        const [x, y] = [number(a), number(b)];
        if (isNaN(x) !== isNaN(y)) return isNaN(x) ? 1 : -1; // what has no number stands last, either way
        const order = isNaN(x) ? a.localeCompare(b) : x - y;
        return descending ? -order : order;
      });
      body.append(...keyed.map(([row]) => row));
    };
    heading.addEventListener("click", sort);
    heading.addEventListener("keydown", (event) => event.key === "Enter" && sort());
  });
}
