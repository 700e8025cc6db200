// What was refused: calls of this page, with the words that it was told, and for the role admin the last ones of all callers.
import { getJson, patience } from "./calls.js";
import { make } from "./dom.js";
import { T } from "./texts.js";

const POLL_MS = 2000, MOST = 20;
const COLUMNS = ["lastS", "tenant", "method", "model", "reason", "code", "number"];
const time = (when) => make("time", { dateTime: when.toISOString() }, when.toLocaleTimeString("en-GB"));

const list = make("ol", { className: "outputs" }), says = make("p", { className: "quiet" }, T.refusals.none);
// It lasts as long as the page, and is told nobody.
export const ownRefusals = make("section", { className: "part" }, make("h2", {}, T.refusals.own), says, list);

// Of a call that somebody has answered.
export function noteRefusal({ asked, reason, field, message }) {
  const key = [asked, reason, message].join("\n");
  says.textContent = T.refusals.ownHelp;
  // What is asked again and again stands once.
  if (list.firstChild?.dataset.key === key) list.firstChild.remove();
  const made = make("li", { className: "words" }, make("span", {}, message),
    make("small", {}, time(new Date()), ` ${[asked, reason, field].filter(Boolean).join(" · ")}`));
  made.dataset.key = key;
  list.prepend(made);
  if (list.children.length > MOST) list.lastChild.remove();
}

const cell = (row, name) => name === "lastS" ? time(new Date(1000 * row.lastS)) : name === "tenant" ? row.tenant || T.refusals.nobody : String(row[name]);

function table(rows) {
  if (!rows.length) return make("p", { className: "quiet" }, T.refusals.none);
  return make("div", { className: "wide", role: "region", "aria-label": T.refusals.all, tabIndex: 0 }, make("table", { className: "state" },
    make("thead", {}, make("tr", {}, COLUMNS.map((name) => make("th", { scope: "col" }, T.refusals.columns[name])))),
    make("tbody", {}, rows.map((row) => make("tr", {}, COLUMNS.map((name) => make("td", {}, cell(row, name))))))));
}

// It asks from when it is opened until it is closed, or no longer shown. So who has not the role is refused once.
export function allRefusals(heard) {
  const shown = make("div"), box = make("details", { className: "settings" }, make("summary", {}, T.refusals.all),
    make("p", { className: "quiet" }, T.refusals.allHelp), shown);
  let waits = 0;
  async function look() {
    clearTimeout(waits);
    if (!box.open || !box.isConnected) return;
    try {
      const rows = await getJson("console/refusals.json", patience()), focus = shown.contains(document.activeElement);
      shown.replaceChildren(table(rows));
      if (focus) shown.querySelector(".wide")?.focus();
    } catch (error) {
      heard(error);
      if (error.status) shown.replaceChildren(make("p", { className: "error", role: "alert" }, error.message));
      if ([401, 403].includes(error.status)) return;
    }
    waits = setTimeout(look, document.hidden ? 5 * POLL_MS : POLL_MS);
  }
  box.addEventListener("toggle", look);
  return box;
}
