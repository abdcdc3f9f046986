// The functions of the page, and what is found by name.

/** The functions, those that took most time first; one is chosen by a click. */
function showFunctions() {
  const section = byId("functions");
  section.hidden = meta.functions.length < 2;
  if (section.hidden) return;
  const text = byId("search").value;
  const all = meta.functions.map((table, number) => ({ table, number }));
  const some = all.filter(({ table }) => text === "" || isFound(table.name, text));
  some.sort((a, b) => b.table.total_ns - a.table.total_ns);
  const current = Number(byId("function").value);
  const rows = some.slice(0, FUNCTIONS_SHOWN).map(({ table, number }) => {
    const choose = () => showFunction(number);
    const button = element("button", { type: "button", className: "link", onclick: choose }, table.name);
    const time = (ns) => (table.p99_ns === 0 ? "–" : duration(ns));
    return {
      cells: [button, grouped(table.calls), time(table.p50_ns), time(table.p99_ns), time(table.max_ns), time(table.total_ns)],
      className: number === current ? "chosen" : "",
    };
  });
  const columns = ["calls", "p50", "p99", "max", "total"].map((title) => [title, NUMBER]);
  const title = text === "" ? "Functions" : `Functions with “${text}”`;
  card("functions", title, table([["", NAME], ...columns], rows), moreOf(some.length, FUNCTIONS_SHOWN));
}

const FUNCTIONS_SHOWN = 12;

/** Marks what has the text of the search field in its name, in the cards and in the opened call. */
function search() {
  const text = byId("search").value.trim();
  const inTree = searchOpened(text);
  for (const row of document.querySelectorAll("#cards tbody tr")) {
    row.classList.toggle("found", isFound(row.cells[0].textContent, text));
  }
  if (text === "") return byId("found").replaceChildren();
  const inFunctions = meta.functions.filter(({ name }) => isFound(name, text)).length;
  const inCards = document.querySelectorAll("#cards tr.found").length;
  const counts = [
    meta.functions.length > 1 ? counted(inFunctions, "function") : "",
    counted(inCards, "row"),
    OPENED.view === null ? "" : `${grouped(inTree)} in the call`,
  ];
  byId("found").textContent = counts.filter(Boolean).join(", ");
}

function searchAndKeep() {
  search();
  showFunctions();
  keepLink();
}
