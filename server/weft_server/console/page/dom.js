// Makes elements. Whatever comes from a server or a caller is set as text, never as HTML.

export function make(name, about = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(about)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...inside.flat().filter((each) => each !== null && each !== undefined && each !== false));
  return made;
}

let numIds = 0;
export const newId = (what) => `${what}-${++numIds}`;

// A control under its name, with a line of help that a screen reader says with it.
export function labelled(name, control, help = "") {
  control.id ||= newId("field");
  const says = help && make("small", { id: `${control.id}-help` }, help);
  if (help) control.setAttribute("aria-describedby", says.id);
  return make("div", { className: "field" }, make("label", { htmlFor: control.id }, name), control, says);
}

export function options(select, pairs, chosen = "") {
  select.replaceChildren(...pairs.map(([value, text]) => make("option", { value, textContent: text })));
  select.value = chosen;
  return select;
}

// Tabs of which one is chosen: `choose` hears its name.
export function tabs(label, pairs, chosen, choose) {
  const list = make("div", { className: "tabs", role: "group", "aria-label": label });
  for (const [name, text] of pairs) {
    const tab = make("button", { type: "button", "aria-pressed": String(name === chosen), onclick: () => {
      for (const each of list.children) each.setAttribute("aria-pressed", String(each === tab));
      choose(name);
    } }, text);
    tab.dataset.name = name;
    list.append(tab);
  }
  return list;
}

export const percent = (share) => share >= 0.9995 ? "100%" : share < 0.0005 ? "< 0.1%" : `${(100 * share).toFixed(1)}%`;
// Of a token as it is shown: what nobody would see, or hear of a reader of the screen, has a name.
export function shown(token) {
  const seen = token.replaceAll("\n", "⏎").replaceAll("\t", "⇥");
  return (/\S/.test(seen) ? seen.replaceAll(" ", "\u00a0") : seen.replace(/\s/g, "␣")) || "∅";
}
