// What an admin does to the models: load one of the repository, put a version in the place of the others, let one go.
import { unary } from "./calls.js";
import { labelled, make, newId } from "./dom.js";
import { T } from "./texts.js";

const VERBS = ["load", "swap", "unload"];
const METHODS = { load: "LoadModel", swap: "SwapModel", unload: "UnloadModel" };

// `models` gives those that ListModels told of last. A load may take minutes: there is no bound but the server's.
export function changesPart(models, heard) {
  const known = make("datalist", { id: newId("known") });
  const name = make("input", { required: true, autocomplete: "off", spellcheck: false, onfocus: () => known.replaceChildren(...models().map((each) => make("option", { value: each.name }))) });
  const version = make("input", { type: "number", min: 1, max: 2 ** 32 - 1, step: 1 });
  const said = make("p", { role: "status" });
  name.setAttribute("list", known.id);
  const buttons = VERBS.map((verb) => make("button", { type: "submit", name: verb, className: verb === "load" ? "main" : "" }, T.changes.verbs[verb]));

  async function change(verb) {
    const asked = { name: name.value.trim(), ...(version.value ? { version: Number(version.value) } : {}) };
    buttons.forEach((each) => { each.disabled = true; });
    Object.assign(said, { className: "quiet", textContent: T.working });
    try {
      const done = await unary(`ModelAdminService/${METHODS[verb]}`, asked);
      const whose = `${asked.name} ${done.model?.version ?? asked.version}`;
      said.textContent = T.changes.done[verb](whose, done.unloaded?.join(", "));
    } catch (error) {
      heard(error);
      Object.assign(said, { className: "error", textContent: error.message });
    }
    buttons.forEach((each) => { each.disabled = false; });
  }
  return make("section", { className: "part" }, make("h2", {}, T.changes.title), make("p", { className: "quiet" }, T.changes.says),
    make("form", { className: "changes", onsubmit: (event) => { event.preventDefault(); change(event.submitter?.name ?? "load"); } },
      known, labelled(T.changes.name, name), labelled(T.changes.version, version, T.changes.versionHelp), make("div", { className: "run" }, buttons)), said);
}
