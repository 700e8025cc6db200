// One model and one thing to ask it: its form, its answer as it comes, and the same call as code.
import { factsOf, shownAnswer } from "./answers.js";
import { Refused, stream, unary } from "./calls.js";
import { codeOf, codePart } from "./code.js";
import { make, tabs } from "./dom.js";
import { fieldControl, messageOf } from "./fields.js";
import { settingsOf } from "./settings.js";
import { T } from "./texts.js";
import { streamOf, verbsOf } from "./verbs.js";

export function playground(model, verbName, facts, choose, refused) {
  const verbs = verbsOf(model), verb = verbs.find((each) => each.name === verbName) ?? verbs[0];
  const head = [make("h1", {}, model.name), make("p", { className: "quiet" }, model.description ?? ""), why(model)];
  if (!verb) return make("div", { className: "model" }, head);
  const controls = verb.fields(model).filter(Boolean).map(([name, kind, more]) => fieldControl(name, kind, more, exampleOf(verb, model, name, more)));
  const settings = settingsOf(verb, model, facts.rows, () => going.hasAnswer && going.run());
  const answer = make("section", { className: "answer", id: "answer", "aria-label": T.answer.title, tabIndex: -1 }, make("h2", {}, T.answer.title), make("p", { className: "quiet" }, T.answer.empty));
  const run = make("button", { type: "submit", className: "main" }, verb.name === "chat" ? T.send : T.run);
  const stop = make("button", { type: "button", disabled: true }, T.stop), says = make("span", { role: "status", className: "quiet" });
  const form = make("form", { className: "ask", noValidate: true, "aria-label": T.verbs[verb.name], onsubmit: (event) => { event.preventDefault(); going.run(); } },
    controls.map((each) => each.element), settings.element, make("div", { className: "row" }, run, stop, says));
  form.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) going.run(); });
  const going = runner({ model, verb, controls, settings, answer, run, stop, says, facts, refused });
  stop.addEventListener("click", going.stop);
  return make("div", { className: "model" }, head,
    tabs(model.name, verbs.map((each) => [each.name, T.verbs[each.name]]), verb.name, choose), make("div", { className: "two" }, form, answer));
}

function why(model) {
  return model.error ? make("p", { className: "error" }, model.error) : null;
}

function exampleOf(verb, model, name, { begin = "" } = {}) {
  const example = T.examples[verb.name]?.[name];
  return example === undefined ? "" : begin + example.replace("{mask}", model.maskToken ?? "");
}

function runner(at) {
  let abort = null;
  const { verb, controls, settings, answer, run, stop, says, model } = at;
  const going = { hasAnswer: false, stop: () => abort?.abort() };
  going.run = async () => {
    abort?.abort();
    const mine = abort = new AbortController(), began = performance.now();
    for (const each of controls) each.blame(false);
    [run.disabled, stop.disabled, says.textContent] = [true, false, T.working];
    answer.setAttribute("aria-busy", "true");
    try {
      const message = await messageOf(model, controls);
      settings.fill(message);
      const said = await asked(verb, message, mine.signal, answer);
      const files = controls.flatMap((each) => each.names?.() ?? (each.blob ? [each.name] : []));
      fill(answer, factsOf(said, performance.now() - began), ...shownAnswer(verb, said, controls, message),
        codePart(codeOf(verb, message, files, at.facts), files));
      controls.find((each) => each.heard)?.heard(said.completion?.text ?? "");
      [says.textContent, going.hasAnswer] = ["", true];
    } catch (error) {
      if (abort !== mine) return;
      says.textContent = mine.signal.aborted ? T.stopped : "";
      if (!mine.signal.aborted) answer.append(refusal(error, at));
    } finally {
      if (abort === mine) {
        [run.disabled, stop.disabled] = [false, true];
        answer.removeAttribute("aria-busy");
      }
    }
  };
  return going;
}

// Its title stays.
const fill = (answer, ...parts) => answer.replaceChildren(answer.firstChild, ...parts);

// The whole answer. What writes is shown while it comes.
async function asked(verb, message, signal, answer) {
  if (!verb.streams) { fill(answer); return await unary(verb.method, message, signal); }
  const text = make("p", { className: "said coming", "aria-live": "polite" });
  fill(answer, text);
  let whole = null;
  for await (const { delta, final } of stream(streamOf(verb.method), { request: message }, signal)) {
    if (delta) text.append(delta.text);
    whole = final ?? whole;
  }
  return whole ?? {};
}

function refusal(error, { controls, settings, refused }) {
  refused(error);
  const is = error instanceof Refused, field = is ? error.field : "";
  const control = controls.find((each) => field.startsWith(snake(each.name_))) ?? settings.find(field);
  control?.blame(true);
  if (control?.path) settings.open();
  control?.input?.focus();
  const words = is && error.status === 0 ? T.errors.away : error.message || String(error);
  return make("div", { className: "error", role: "alert" }, make("b", {}, T.errors.none), " ", words,
    is && (error.reason || field) && make("small", {}, [error.reason && `${T.errors.reason}: ${error.reason}`, field && `${T.errors.field}: ${field}`].filter(Boolean).join(" · ")));
}

const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
