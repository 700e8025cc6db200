// The page: which models there are, which is chosen, and who calls. The address says what is chosen.
import { Refused, get, token, unary, urlOf } from "./calls.js";
import { make, newId } from "./dom.js";
import { playground } from "./playground.js";
import { statePage } from "./state.js";
import { T } from "./texts.js";

const POLL_MS = 3000;
// No key of a model: these have an @.
const STATE = "state";
const list = make("nav", { className: "models", "aria-label": T.nav.models }), main = make("main", { id: "main" });
const banner = make("p", { className: "banner", role: "status", hidden: true }, T.errors.away);
const keyOf = (model) => `${model.name}@${model.version}`;
const stateLink = make("a", { href: `#/${STATE}` }, T.state.title);
let models = [], facts = null, shownFor = "";

const chosen = () => location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);

function show() {
  const [key, verb] = chosen(), model = models.find((each) => keyOf(each) === key) ?? models.find((each) => each.state === "MODEL_STATE_READY") ?? models[0];
  const isState = key === STATE, wanted = isState ? STATE : `${model && keyOf(model)}/${verb}/${model?.state}`;
  drawList(isState ? null : model);
  if (isState) stateLink.setAttribute("aria-current", "page"); else stateLink.removeAttribute("aria-current");
  if (wanted === shownFor) return;
  shownFor = wanted;
  document.title = isState ? `${T.state.title} · Weft` : model ? `${model.name} · Weft` : "Weft";
  main.replaceChildren(isState ? statePage(() => models, heard) : model ? playground(model, verb, facts, (name) => { location.hash = `/${keyOf(model)}/${name}`; }, heard) : make("p", { className: "quiet" }, T.nav.none));
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
  if (error.status === 401) askToken();
  if (error.status === 0) { banner.hidden = false; poll(); }
}

let polling = 0;
async function poll() {
  clearTimeout(polling);
  try {
    facts ??= await (await get("console/facts.json")).json();
    models = (await unary("ModelService/ListModels", {})).models ?? [];
    banner.hidden = true;
    show();
  } catch (error) {
    if (error instanceof Refused && error.status === 0) banner.hidden = false;
    else if (error instanceof Refused && error.status === 401) { askToken(); return; } else main.replaceChildren(make("p", { className: "error", role: "alert" }, error.message));
  }
  polling = setTimeout(poll, document.hidden ? 10 * POLL_MS : POLL_MS);
}

const given = make("input", { type: "password", autocomplete: "off", id: "token", spellcheck: false });
const wrong = make("p", { className: "error", role: "alert", hidden: true }, T.token.wrong);
const dialog = make("dialog", { "aria-labelledby": "who" }, make("form", { onsubmit: (event) => {
  event.preventDefault();
  token.set(given.value.trim());
  given.value = "";
  dialog.close();
  poll();
} }, make("h2", { id: "who" }, T.token.title), make("p", {}, T.token.says), make("label", { htmlFor: "token" }, T.token.label), given, wrong,
  make("div", { className: "row" }, make("button", { className: "main", type: "submit" }, T.token.use))));

function askToken() {
  wrong.hidden = !token.get();
  if (!dialog.open) dialog.showModal();
}

document.body.replaceChildren(
  make("a", { className: "skip", href: "#main", onclick: (event) => { event.preventDefault(); document.getElementById("answer")?.focus(); } }, T.skip),
  make("header", {}, make("a", { className: "brand", href: "#/" }, make("img", { src: urlOf("console/icon.svg"), alt: "" }), "Weft"),
    make("nav", { className: "links", "aria-label": "Weft" }, stateLink, make("a", { href: urlOf("docs") }, T.nav.calls), make("button", { type: "button", onclick: askToken }, T.token.other))),
  banner, make("div", { className: "page" }, list, main), dialog);
addEventListener("hashchange", show);
document.addEventListener("visibilitychange", () => document.hidden || poll());
poll();
