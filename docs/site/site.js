// Writes each column's name into its cells, for site.css to show where a row is a card.
for (const table of document.querySelectorAll("article table")) {
  const names = [...table.querySelectorAll("thead th")].map(cell => cell.textContent.trim());
  for (const row of table.querySelectorAll("tbody tr"))
    [...row.cells].forEach((cell, column) => { if (column > 0 && names[column]) cell.dataset.column = names[column]; });
}
