// Pictures and recordings: chosen, dropped, drawn or spoken. A server takes PNG, JPEG, WebP, WAV and FLAC: others are made so.
import { make } from "./dom.js";
import { T } from "./texts.js";

const TAKEN = /^(image\/(png|jpeg|webp)|audio\/(wav|x-wav|flac|x-flac|wave|vnd\.wave))$/;
const COLORS = ["#ffffff", "#000000", "#d62728", "#1f77b4", "#2ca02c", "#f1c40f", "#ff7f0e", "#8e44ad"];
const PAD = 224;

export const base64 = (blob) => new Promise((done, fail) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result.slice(reader.result.indexOf(",") + 1));
  reader.onerror = () => fail(reader.error);
  reader.readAsDataURL(blob);
});

// `take` hears of such files that are pasted, wherever the page has the focus. Returns what ends that.
export function onPaste(kind, take) {
  const ends = new AbortController();
  document.addEventListener("paste", (event) => {
    const { files, types } = event.clipboardData, found = [...files].filter((each) => each.type.startsWith(kind));
    // What comes out of an office program is a picture and a text: where a text is written, that is meant.
    if (!found.length || types.includes("text/plain")) return;
    event.preventDefault();
    take(found);
  }, { signal: ends.signal });
  return () => ends.abort();
}

// A control that holds a blob. `value` gives {data: base64}, or nothing.
function fileControl(name, accept, ways, convert) {
  const box = make("div", { className: "file" }), preview = make("div", { className: "preview" });
  const input = make("input", { type: "file", accept, "aria-label": T.fields[name] ?? name });
  const says = make("p", { className: "quiet", role: "status" });
  const control = { element: box, blob: null, name: "", input, preview };
  control.tell = (text) => { says.textContent = text; };
  // Whoever asks at once waits for it. Of two files the one that was given last is taken.
  control.set = (blob, title) => control.taken = take(blob, title);
  let last = null;
  async function take(blob, title) {
    const mine = last = Symbol(title);
    control.tell("");
    try {
      const made = TAKEN.test(blob.type) ? [blob, title] : await convert(blob, title);
      const seconds = await control.secondsOf?.(made[0]);
      if (control.isClosed || mine !== last) return;
      [control.blob, control.name, control.seconds] = [...made, seconds];
      control.shows?.();
    } catch {
      if (mine !== last) return;
      control.blob = null;
      control.tell(T.files.unreadable);
    }
  }
  control.clear = () => {
    URL.revokeObjectURL(control.url);
    [control.blob, input.value] = [null, ""];
    preview.replaceChildren();
  };
  // It is no longer shown.
  control.close = () => {
    control.isClosed = true;
    endPaste();
    control.endRecording?.();
    URL.revokeObjectURL(control.url);
  };
  const endPaste = onPaste(accept.replace("*", ""), ([file]) => control.set(file, file.name));
  control.value = async () => (await control.taken, control.blob) ? { data: await base64(control.blob) } : undefined;
  input.addEventListener("change", () => input.files[0] && control.set(input.files[0], input.files[0].name));
  box.addEventListener("dragover", (event) => { event.preventDefault(); box.classList.add("over"); });
  box.addEventListener("dragleave", () => box.classList.remove("over"));
  box.addEventListener("drop", (event) => {
    event.preventDefault();
    box.classList.remove("over");
    if (event.dataTransfer.files[0]) control.set(event.dataTransfer.files[0], event.dataTransfer.files[0].name);
  });
  box.append(...ways(control), preview, says);
  return control;
}

export function pictureControl(name) {
  const control = fileControl(name, "image/*", (made) => [make("div", { className: "row" }, made.input, drawing(made))], async (blob, title) => {
    const bitmap = await createImageBitmap(blob), canvas = make("canvas", { width: bitmap.width, height: bitmap.height });
    canvas.getContext("2d").drawImage(bitmap, 0, 0);
    return [await new Promise((done) => canvas.toBlob(done)), title.replace(/\.\w+$/, "") + ".png"];
  });
  control.shows = () => {
    URL.revokeObjectURL(control.url);
    control.url = URL.createObjectURL(control.blob);
    control.preview.replaceChildren(make("img", { src: control.url, alt: control.name }));
  };
  return control;
}

function drawing(control) {
  return make("button", { type: "button", onclick: () => control.preview.replaceChildren(pad(control)) }, T.files.draw);
}

// A sheet to draw on, with a pointer. What is on it is the picture.
function pad(control) {
  const canvas = make("canvas", { width: PAD, height: PAD, className: "pad", "aria-label": T.files.pad, role: "img" });
  const pen = canvas.getContext("2d");
  let color = COLORS[0], isDown = false;
  const keep = () => { control.taken = new Promise((done) => canvas.toBlob((blob) => {
    if (control.isClosed) { done(); return; }
    URL.revokeObjectURL(control.url);
    [control.blob, control.name, control.url] = [blob, "drawing.png", URL.createObjectURL(blob)];
    done();
  })); };
  const clear = (ground) => { pen.fillStyle = ground; pen.fillRect(0, 0, PAD, PAD); keep(); };
  const at = (event) => [event.offsetX * PAD / canvas.clientWidth, event.offsetY * PAD / canvas.clientHeight];
  const line = (event) => {
    pen.lineTo(...at(event));
    Object.assign(pen, { strokeStyle: color, lineWidth: PAD / 11, lineCap: "round", lineJoin: "round" });
    pen.stroke();
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    isDown = true;
    pen.beginPath();
    pen.moveTo(...at(event));
    line(event);
  });
  canvas.addEventListener("pointermove", (event) => isDown && line(event));
  canvas.addEventListener("pointerup", () => { isDown = false; keep(); });
  const inks = make("div", { className: "row", role: "group", "aria-label": T.files.ink }, COLORS.map((each, number) => {
    const ink = make("button", { type: "button", className: "ink", "aria-label": T.files.inks[number], onclick: () => { color = each; } });
    ink.style.setProperty("--color", each);
    return ink;
  }));
  clear("#000000");
  return make("div", { className: "drawing" }, canvas, inks, make("div", { className: "row" },
    make("button", { type: "button", onclick: () => clear("#000000") }, T.files.dark),
    make("button", { type: "button", onclick: () => clear("#ffffff") }, T.files.light)));
}

// How long a recording is, by its head alone. What this browser cannot read, the server may.
const secondsOf = (blob) => new Promise((done) => {
  const url = URL.createObjectURL(blob), audio = make("audio", { preload: "metadata" });
  const end = () => { URL.revokeObjectURL(url); done(Number.isFinite(audio.duration) ? audio.duration : 0); };
  audio.addEventListener("loadedmetadata", end);
  audio.addEventListener("error", end);
  audio.src = url;
});

export function soundControl(name) {
  const control = fileControl(name, "audio/*", (made) => [make("div", { className: "row" }, made.input, microphone(made))], async (blob, title) =>
    [wav(await samplesOf(blob)), title.replace(/\.\w+$/, "") + ".wav"]);
  control.secondsOf = secondsOf;
  control.shows = () => {
    URL.revokeObjectURL(control.url);
    control.url = URL.createObjectURL(control.blob);
    control.preview.replaceChildren(make("audio", { src: control.url, controls: true, "aria-label": control.name }));
  };
  return control;
}

// Why there is none, by the name of what the browser throws. Of a page that is not secure it has no `mediaDevices`.
const WHY_NOT = { NotAllowedError: T.files.refused, TypeError: T.files.notSecure };

function microphone(control) {
  let recorder = null;
  control.endRecording = () => recorder?.stop();
  const button = make("button", { type: "button", onclick: async () => {
    if (recorder) { recorder.stop(); return; }
    let heard;
    control.tell("");
    try { heard = await navigator.mediaDevices.getUserMedia({ audio: true }); } catch (error) { control.tell(WHY_NOT[error.name] ?? T.files.noMicrophone); return; }
    if (control.isClosed) { for (const track of heard.getTracks()) track.stop(); return; }
    const pieces = [];
    recorder = new MediaRecorder(heard);
    recorder.ondataavailable = (event) => pieces.push(event.data);
    recorder.onstop = () => {
      for (const track of heard.getTracks()) track.stop();
      [recorder, button.textContent] = [null, T.files.record];
      control.set(new Blob(pieces, { type: "audio/webm" }), "recording");
    };
    recorder.start();
    button.textContent = T.files.recording;
  } }, T.files.record);
  return button;
}

// {samples, rate}, of one channel.
export async function samplesOf(blob) {
  const context = new OfflineAudioContext(1, 1, 16000), heard = await context.decodeAudioData(await blob.arrayBuffer());
  const samples = new Float32Array(heard.length);
  for (let channel = 0; channel < heard.numberOfChannels; channel++) {
    heard.getChannelData(channel).forEach((each, number) => { samples[number] += each / heard.numberOfChannels; });
  }
  return { samples, rate: heard.sampleRate };
}

// A WAV file of 16 bits.
function wav({ samples, rate }) {
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const words = (at, text) => [...text].forEach((letter, number) => view.setUint8(at + number, letter.charCodeAt(0)));
  words(0, "RIFF"); view.setUint32(4, 36 + 2 * samples.length, true); words(8, "WAVEfmt ");
  view.setUint32(16, 16, true); view.setUint16(20, 1, true); view.setUint16(22, 1, true);
  view.setUint32(24, rate, true); view.setUint32(28, 2 * rate, true); view.setUint16(32, 2, true); view.setUint16(34, 16, true);
  words(36, "data"); view.setUint32(40, 2 * samples.length, true);
  samples.forEach((each, number) => view.setInt16(44 + 2 * number, Math.max(-1, Math.min(1, each)) * 32767, true));
  return new Blob([view.buffer], { type: "audio/wav" });
}

