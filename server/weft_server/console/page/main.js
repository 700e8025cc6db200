// The page: which models there are, which is chosen, and who calls. The address says what is chosen.
import { Refused, getJson, patience, token, unary, urlOf } from "./calls.js";
import { make, newId } from "./dom.js";
import { playground } from "./playground.js";
import { noteRefusal } from "./refusals.js";
import { statePage } from "./state.js";
import { T } from "./texts.js";

const POLL_MS = 3000;
// No key of a model: these have an @.
const STATE = "state";
const list = make("nav", { className: "models", "aria-label": T.nav.models }), main = make("main", { id: "main", tabIndex: -1 });
const banner = make("p", { className: "banner", role: "status", hidden: true });
const keyOf = (model) => `${model.name}@${model.version}`;
const stateLink = make("a", { href: `#/${STATE}` }, T.state.title);
const skip = make("a", { className: "skip", href: "#main", onclick: (event) => { event.preventDefault(); (document.getElementById("answer") ?? main).focus(); } });
// `part` is what `main` shows, and `last` the model that it showed last.
let models = [], facts = null, part = null, shownFor = "", last = null;

// An address that cannot be read chooses nothing.
function chosen() {
  try { return location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent); } catch { return []; }
}

function show() {
  const [key, verb] = chosen(), of = (name) => models.find((each) => keyOf(each) === name);
  // A model that is gone takes no answer away, and nothing that is written: another one is chosen by whoever reads it.
  const stays = last && (of(keyOf(last)) ?? { ...last, error: T.nav.gone });
  const model = of(key) ?? stays ?? models.find((each) => each.state === "MODEL_STATE_READY") ?? models[0];
  const isState = key === STATE, wanted = isState ? STATE : `${model && keyOf(model)}/${verb}`;
  drawList(isState ? null : model);
  if (isState) stateLink.setAttribute("aria-current", "page"); else stateLink.removeAttribute("aria-current");
  // A model that loads has told nothing yet of what its form needs.
  if (model && !isState) last = model;
  if (wanted === shownFor && (part.isWhole || !model?.limits)) { part.tell?.(model); return; }
  part?.close?.();
  const isInside = main.contains(document.activeElement);
  [shownFor, skip.textContent] = [wanted, isState ? T.skip.state : T.skip.answer];
  document.title = isState ? `${T.state.title} · Weft` : model ? `${model.name} · Weft` : "Weft";
  part = isState ? { element: statePage(() => models, facts.changes, heard), isWhole: true }
    : model ? playground(model, verb, facts, (name) => { location.hash = `/${keyOf(model)}/${name}`; }, heard)
      : { element: make("p", { className: "quiet" }, T.nav.none), isWhole: true };
  main.replaceChildren(part.element);
  showChosen();
  if (isInside) (main.querySelector(".tabs [aria-pressed=true]") ?? main).focus();
}

// On a telephone the list is a row, which is longer than the screen.
function showChosen() {
  const box = list.querySelector("[aria-current]")?.getBoundingClientRect(), { left, right, top, bottom } = list.getBoundingClientRect();
  if (!box) return;
  if (box.left < left || box.right > right) list.scrollLeft += box.left - left - 12;
  if (box.top < top || box.bottom > bottom) list.scrollTop += box.top - top - 12;
}

function drawList(current) {
  const groups = new Map();
  for (const model of models) groups.set(model.task, [...(groups.get(model.task) ?? []), model]);
  const twice = new Set(models.map((each) => each.name).filter((name, at, all) => all.indexOf(name) !== at));
  const focused = document.activeElement?.dataset?.key;
  list.replaceChildren(...[...groups].map(([task, inside]) => {
    const id = newId("task");
    return make("section", { "aria-labelledby": id }, make("h2", { id }, T.tasks[task] ?? task), make("ul", {}, inside.map((model) => {
      const state = T.states[model.state] ?? model.state, link = make("a", { href: `#/${keyOf(model)}` },
        make("span", { className: `dot ${model.state}`, title: state }), make("span", {}, model.name), twice.has(model.name) && make("small", {}, `@${model.version}`),
        model.state !== "MODEL_STATE_READY" && make("small", {}, state));
      link.dataset.key = keyOf(model);
      if (model === current) link.setAttribute("aria-current", "page");
      return make("li", {}, link);
    })));
  }));
  if (focused) [...list.querySelectorAll("a")].find((each) => each.dataset.key === focused)?.focus();
}

// Of each call that failed: whoever is not known is asked for a token.
function heard(error) {
  if (!(error instanceof Refused)) return;
  if (error.status) noteRefusal(error);
  if (error.status === 401) askToken(token.get());
  if (error.status === 0) { warn(error); poll(); }
}

// What is shown stays.
function warn(error) {
  banner.textContent = error instanceof Refused && error.status === 0 ? error.message : `${T.errors.none} ${error.message}`;
  banner.hidden = false;
}

// One at a time: whoever asks anew ends what was asked before.
let polling = 0, asking = null;
async function poll() {
  clearTimeout(polling);
  asking?.abort();
  const mine = asking = new AbortController(), signal = AbortSignal.any([mine.signal, patience()]);
  let failed = null;
  try {
    // Whoever is asked for a token at once need not be refused first.
    if (!facts && !token.get() && (await getJson("console/caller.json", signal)).asksToken) { askToken(); return; }
    facts ??= await getJson("console/facts.json", signal);
    models = (await unary("ModelService/ListModels", {}, signal)).models ?? [];
  } catch (error) { failed = error; }
  if (mine !== asking) return;
  if (failed?.status === 401) { askToken(token.get()); return; }
  polling = setTimeout(poll, document.hidden ? 10 * POLL_MS : POLL_MS);
  if (failed) { warn(failed); return; }
  banner.hidden = true;
  show();
}

const given = make("input", { type: "password", autocomplete: "off", id: "token", spellcheck: false });
const wrong = make("p", { className: "error", role: "alert", hidden: true }, T.token.wrong);
const dialog = make("dialog", { "aria-labelledby": "who" }, make("form", { onsubmit: (event) => {
  event.preventDefault();
  token.set(given.value.trim());
  facts = null;
  given.value = "";
  dialog.close();
  // The state asks no more of whom it was refused.
  if (shownFor === STATE) shownFor = "";
  poll();
} }, make("h2", { id: "who" }, T.token.title), make("p", {}, T.token.says), make("label", { htmlFor: "token" }, T.token.label), given, wrong,
  make("div", { className: "row" }, make("button", { className: "main", type: "submit" }, T.token.use))));

function askToken(refused = "") {
  wrong.hidden = !refused;
  if (!dialog.open) dialog.showModal();
}

document.body.replaceChildren(
  skip, make("header", {}, make("a", { className: "brand", href: "#/" }, make("img", { src: urlOf("console/icon.svg"), alt: "" }), "Weft"),
    make("nav", { className: "links", "aria-label": "Weft" }, stateLink, make("a", { href: urlOf("docs") }, T.nav.calls), make("button", { type: "button", onclick: () => askToken() }, T.token.other))),
  banner, make("div", { className: "page" }, list, main), dialog);
addEventListener("hashchange", () => facts && show());
// A file that misses its place would be opened instead of this page.
for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => { if (event.dataTransfer.types.includes("Files") && event.target.type !== "file") event.preventDefault(); });
document.addEventListener("visibilitychange", () => document.hidden || poll());
poll();
