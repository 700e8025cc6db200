// Attention, drawn: what was written on one side, what was read on the other. Pointing at one lights up the other.
import { make, shown } from "./dom.js";
import { samplesOf } from "./files.js";
import { T } from "./texts.js";

const SPOT = 0.72;
const BARS = 320;
<<<<<<< HEAD
// By keys nobody goes over a recording in more strides than this.
const LIT = 0.35, MOST_NAMED = 3, MOST_STRIDES = 50;
=======
// Of a picture of a chat, down and across.
const MOST_CELLS = 64;
>>>>>>> seen
const normal = (values) => { const most = Math.max(...values, 1e-9); return values.map((each) => each / most); };

export function heat(elements, values) {
  elements.forEach((each, number) => {
    each.style.setProperty("--heat", values ? values[number] ?? 0 : 0);
    each.classList.toggle("lit", Boolean(values) && (values[number] ?? 0) > LIT);
  });
}

export function chip(token, about = {}) {
  const text = shown(token);
  // To who hears the page, white space alone is no name.
  return make("button", { type: "button", className: "chip", ...(text.trim() ? {} : { ariaLabel: T.answer.space }), ...about }, text);
}

<<<<<<< HEAD
// Of those that are lit the first ones, for who sees no colours.
const named = (values, name, most = MOST_NAMED) => values.map((value, number) => [value, number]).filter(([value]) => value > LIT)
  .sort(([one], [other]) => other - one).slice(0, most).map(([, number]) => name(number)).join(", ");
const quoted = (token) => `“${shown(token)}”`;

// Both ways: `columns` has `element`, `show(values)`, and calls `point` with a column, or null. `targets` are elements, one for each row.
// `says` hears `at`, where the row that is pointed at looked most, and `share`, that of its attention which lay on the columns, or null: all
// of it. Of a column that is pointed at it hears `by`: the rows that looked there most. And null, when none is pointed at.
=======
// Both ways: `columns` has `element`, `show(values)`, and calls `point` with a column, several, or null. `targets` are elements, one for each row.
// `says` hears of the row that is pointed at what share of its attention lay on the columns, or null: all of it, or none is pointed at.
>>>>>>> seen
export function attend({ targetTokens = [] }, weights, masses, targets, columns, says) {
  const width = weights.length / (targetTokens.length || 1);
  const row = (number) => weights.slice(number * width, (number + 1) * width);
  targets.forEach((target, number) => {
    if (number >= targetTokens.length) return;
    const enter = () => {
      const values = normal(row(number)), mass = masses[number];
      columns.show(values);
      says({ at: named(values, columns.name, columns.mostNamed), share: mass !== undefined && mass < 0.995 ? `${Math.round(100 * mass)}%` : null });
    };
    on(target, enter, () => { columns.show(null); says(null); });
  });
<<<<<<< HEAD
  columns.point = (number) => {
    const values = number === null ? null : normal(targetTokens.map((_, index) => weights[index * width + number]));
    heat(targets, values);
    says(values && { by: named(values, (index) => quoted(targetTokens[index])) });
  };
=======
  columns.point = (pointed) => heat(targets, pointed === null ? null : normal(targetTokens.map((_, index) => [pointed].flat().reduce((sum, number) => sum + weights[index * width + number], 0))));
>>>>>>> seen
  // What has one row alone is shown at once: it is the whole answer.
  columns.rest = targetTokens.length === 1 ? normal(row(0)) : null;
  columns.show(null);
}

export function on(element, enter, leave) {
  for (const [kind, does] of [["pointerenter", enter], ["focus", enter], ["pointerleave", leave], ["blur", leave]]) element.addEventListener(kind, does);
}

const WAYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const within = (number, size) => Math.min(size - 1, Math.max(0, number));

// Arrow keys go over what has `across` times `down` columns, as a pointer does. They begin in the middle.
function walked(element, columns, across, down, stride = 1) {
  let at = null;
  const go = (number) => {
    at = number;
    columns.point(at);
    columns.show(at === null ? null : Array.from({ length: across * down }, (_, each) => Number(each === at)));
  };
  element.addEventListener("keydown", (event) => {
    const way = WAYS[event.key];
    if (!way) return;
    event.preventDefault();
    const [x, y] = at === null ? [across >> 1, down >> 1] : [at % across + stride * way[0], Math.floor(at / across) + way[1]];
    go(within(y, down) * across + within(x, across));
  });
  element.addEventListener("blur", () => at !== null && go(null));
}

// What was read is a text.
export function tokenColumns(tokens) {
  const chips = tokens.map((token) => chip(token)), element = make("div", { className: "chips source" }, chips);
  const columns = { element, chips, point: () => {}, name: (number) => quoted(tokens[number]) };
  columns.show = (values) => heat(chips, values ?? columns.rest);
  chips.forEach((each, number) => on(each, () => columns.point(number), () => columns.point(null)));
  return columns;
}

// A picture whose cells, on a part of it, are shaded: what was not looked at grows dark. `moved` hears where the pointer is, in shares of
// the picture, or of nothing.
function shaded(url, rows, across, { left = 0, top = 0, right = 1, bottom = 1 } = {}) {
  const image = make("img", { src: url, alt: T.fields.image }), canvas = make("canvas", { className: "heat" });
<<<<<<< HEAD
  const { left = 0, top = 0, right = 1, bottom = 1 } = imageRegion, grid = new OffscreenCanvas(gridColumns, gridRows), dots = grid.getContext("2d");
  const element = make("div", { className: "seen", tabIndex: 0, role: "application", "aria-label": T.answer.walkPicture }, image, canvas);
  const columns = { element, point: () => {}, mostNamed: 1 };
  columns.name = (number) => T.answer.place(left + (right - left) * (number % gridColumns + 0.5) / gridColumns, top + (bottom - top) * (Math.floor(number / gridColumns) + 0.5) / gridRows);
  walked(element, columns, gridColumns, gridRows);
  columns.show = (pointed) => {
    const pen = canvas.getContext("2d"), values = pointed ?? columns.rest;
=======
  const grid = new OffscreenCanvas(across, rows), dots = grid.getContext("2d");
  const made = { element: make("div", { className: "seen" }, image, canvas), moved: () => {} };
  let last = null;
  made.paint = (values) => {
    const pen = canvas.getContext("2d");
    last = values;
>>>>>>> seen
    [canvas.width, canvas.height] = [image.clientWidth || image.naturalWidth || 1, image.clientHeight || image.naturalHeight || 1];
    made.element.classList.toggle("lit", Boolean(values));
    if (!values) return;
    const shade = new ImageData(across, rows);
    values.forEach((each, number) => { shade.data[4 * number + 3] = 255 * SPOT * (1 - each ** 0.7); });
    dots.putImageData(shade, 0, 0);
    pen.imageSmoothingQuality = "high";
    pen.fillStyle = `rgb(0 0 0 / ${SPOT})`;
    pen.fillRect(0, 0, canvas.width, canvas.height);
    const place = [left * canvas.width, top * canvas.height, (right - left) * canvas.width, (bottom - top) * canvas.height];
    pen.clearRect(...place);
    pen.drawImage(grid, ...place);
  };
  // It has no size before.
  image.addEventListener("load", () => made.paint(last));
  made.element.addEventListener("pointermove", (event) => {
    const box = image.getBoundingClientRect();
    made.moved([(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height]);
  });
  made.element.addEventListener("pointerleave", () => made.moved(null));
  return made;
}

// Which cell of a grid lies at a place of the picture, or null.
function cellAt(place, { gridRows, gridColumns, rowColumns = gridColumns, region: { left = 0, top = 0, right = 1, bottom = 1 } = {} }) {
  if (!place) return null;
  const across = (place[0] - left) / (right - left), down = (place[1] - top) / (bottom - top);
  return across >= 0 && across < 1 && down >= 0 && down < 1 ? Math.floor(down * gridRows) * rowColumns + Math.floor(across * gridColumns) : null;
}

// What was read is a picture.
export function pictureColumns(url, { gridRows, gridColumns, imageRegion }) {
  const seen = shaded(url, gridRows, gridColumns, imageRegion), columns = { element: seen.element, point: () => {} };
  columns.show = (values) => seen.paint(values ?? columns.rest);
  seen.moved = (place) => columns.point(cellAt(place, { gridRows, gridColumns, region: imageRegion }));
  return columns;
}

// How much of a part that begins at `first` lies in each of `count` cells of [0, 1]: pairs of a cell and a share.
function overlaps(first, size, count) {
  const found = [];
  for (let cell = Math.max(0, Math.floor(first * count)); cell < Math.min(count, Math.ceil((first + size) * count)); cell++) {
    found.push([cell, (Math.min(first + size, (cell + 1) / count) - Math.max(first, cell / count)) / size]);
  }
  return found;
}

// One of a prompt's pictures. Its grids, of which each has a part of it, add up in cells as fine as the finest. `sums` gives the cells'.
function grids(url, laid) {
  const fine = (of) => Math.min(MOST_CELLS, Math.round(Math.max(...laid.map((each) => of(each, each.region ?? {})))) || 1);
  const rows = fine(({ gridRows }, { top = 0, bottom = 1 }) => gridRows / (bottom - top));
  const across = fine(({ gridColumns }, { left = 0, right = 1 }) => gridColumns / (right - left));
  const parts = [];
  for (const { firstColumn = 0, gridRows, gridColumns, rowColumns, region: { left = 0, top = 0, right = 1, bottom = 1 } = {} } of laid) {
    const wide = (right - left) / gridColumns, high = (bottom - top) / gridRows;
    for (let row = 0; row < gridRows; row++) for (let column = 0; column < gridColumns; column++) {
      for (const [at, share] of overlaps(top + row * high, high, rows)) for (const [place, part] of overlaps(left + column * wide, wide, across)) {
        parts.push([at * across + place, firstColumn + row * rowColumns + column, share * part]);
      }
    }
  }
  const made = shaded(url, rows, across);
  made.sums = (values) => {
    const sums = new Array(rows * across).fill(0);
    for (const [cell, column, share] of parts) sums[cell] += share * values[column];
    return sums;
  };
  made.columnsAt = (place) => laid.map((each) => [each.firstColumn ?? 0, cellAt(place, each)]).filter(([, cell]) => cell !== null).map(([first, cell]) => first + cell);
  return made;
}

// What was read is a chat with pictures: these, and its words below. Both are lit by what lay on their own kind. `shares` hears how much of
// what lay on the prompt lay on the pictures, or null.
export function chatColumns(urls, { sourceTokens, pictures }) {
  const place = sourceTokens[pictures[0].firstColumn ?? 0], words = [...sourceTokens.keys()].filter((column) => sourceTokens[column] !== place);
  const seen = urls.map((url, number) => grids(url, pictures.filter(({ picture = 0 }) => picture === number)));
  const chips = words.map((column) => chip(sourceTokens[column]));
  const columns = { element: make("div", { className: "looked" }, make("div", { className: "row" }, seen.map((each) => each.element)), make("div", { className: "chips source" }, chips)), point: () => {}, shares: () => {} };
  columns.show = (pointed) => {
    const values = pointed ?? columns.rest, sums = values && seen.map((each) => each.sums(values)), most = values && Math.max(1e-9, ...sums.map((each) => Math.max(...each)));
    seen.forEach((each, number) => each.paint(values ? sums[number].map((sum) => sum / most) : null));
    heat(chips, values ? normal(words.map((column) => values[column])) : null);
    columns.shares(pointed ? 1 - words.reduce((sum, column) => sum + pointed[column], 0) / pointed.reduce((sum, each) => sum + each, 0) : null);
  };
  for (const each of seen) each.moved = (at) => { const found = at ? each.columnsAt(at) : []; columns.point(found.length ? found : null); };
  chips.forEach((each, number) => on(each, () => columns.point(words[number]), () => columns.point(null)));
  return columns;
}

// What was heard is a recording: its loudness, its moments, and its sound.
export function soundColumns(blob, url, { columnS, numColumns }) {
  const canvas = make("canvas", { className: "wave", width: 2 * BARS, height: 120, tabIndex: 0, role: "application", "aria-label": T.answer.walkSound });
  const audio = make("audio", { src: url, controls: true, "aria-label": T.fields.audio });
  const columns = { element: make("div", { className: "heard" }, canvas, audio), point: () => {}, mostNamed: 1, name: (number) => T.answer.moment((number + 0.5) * columnS) };
  walked(canvas, columns, numColumns, 1, Math.max(1, Math.round(numColumns / MOST_STRIDES)));
  let loud = [], duration = 1;
  columns.show = (values) => {
    const pen = canvas.getContext("2d"), ink = getComputedStyle(canvas);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    loud.forEach((each, number) => {
      const column = Math.floor(number / BARS * duration / columnS), is = values?.[column] ?? 0;
      pen.globalAlpha = values ? 0.25 + 0.75 * is : 0.8;
      pen.fillStyle = is > 0.15 ? ink.caretColor : ink.color;
      pen.fillRect(2 * number, 60 - 56 * each, 1.4, Math.max(2, 112 * each));
    });
  };
  samplesOf(blob).then(({ samples, rate }) => {
    const size = samples.length / BARS;
    duration = samples.length / rate;
    loud = normal(Array.from({ length: BARS }, (_, number) => samples.subarray(number * size, (number + 1) * size).reduce((most, each) => Math.max(most, Math.abs(each)), 0)));
    columns.show(null);
  }, () => canvas.replaceWith(make("p", { className: "quiet" }, T.answer.noWave)));
  canvas.addEventListener("pointermove", (event) => columns.point(Math.min(numColumns - 1, Math.floor(event.offsetX / canvas.clientWidth * duration / columnS))));
  canvas.addEventListener("pointerleave", () => columns.point(null));
  // Plays one word.
  columns.play = ({ startS = 0, endS = 0 }) => {
    audio.currentTime = startS;
    const end = () => { if (audio.currentTime >= endS) { audio.pause(); audio.removeEventListener("timeupdate", end); } };
    audio.addEventListener("timeupdate", end);
    audio.play();
  };
  return columns;
}
