// What can be asked, a row for each: the method, which models answer it, and what its message has. A new model needs no row.
import { T } from "./texts.js";

const isOf = (...tasks) => (model) => tasks.includes(`${model.task}`.replace("TASK_", ""));
const several = (list) => (list?.length ?? 0) > 1;
const hasText = (model) => !isOf("CLASSIFY_IMAGE", "EMBED_IMAGE")(model);

function text(model, more = {}) {
  const begins = model.prefixes?.length ? T.help.prefixes + model.prefixes.map((each) => `“${each}”`).join(", ") : "";
  return ["text", "text", { help: model.maskToken ? T.help.mask + model.maskToken : begins, begin: model.prefixes?.[0] ?? "", ...more }];
}
const languages = (name, tags) => several(tags) && [name, "choice", { choices: tags }];

// `fields` are of the message, by their JSON names: [name, kind, more]. `streams`: it has a StreamX. `writes`: it takes a Decoding.
export const VERBS = [
  { name: "translate", method: "TranslationService/Translate", fits: isOf("TRANSLATE"), streams: true, writes: true,
    fields: (model) => [text(model), languages("sourceLanguage", model.sourceLanguages), languages("targetLanguage", model.targetLanguages),
      ["splitSentences", "check", { help: T.help.splitSentences }]] },
  { name: "caption", method: "CaptionService/Caption", fits: isOf("CAPTION"), streams: true, writes: true, fields: () => [["image", "picture"]] },
  { name: "answer", method: "AnswerService/Answer", fits: isOf("ANSWER"), streams: true, writes: true, fields: (model) => [["image", "picture"], text(model, { label: T.fields.question })] },
  { name: "transcribe", method: "TranscriptionService/Transcribe", fits: isOf("TRANSCRIBE", "TRANSCRIBE_CTC"), streams: true, writes: true,
    fields: (model) => [["audio", "sound"], languages("language", model.sourceLanguages),
      several(model.targetLanguages) && ["toEnglish", "check"], model.tellsTimestamps && ["timestamps", "check", { help: T.help.timestamps }]] },
  { name: "generate", method: "GenerationService/Generate", fits: isOf("GENERATE"), streams: true, writes: true, fields: (model) => [text(model)] },
  { name: "chat", method: "GenerationService/Generate", fits: (model) => model.takesMessages, streams: true, writes: true, fields: (model) => [["turns", "chat", { takesPictures: model.takesPictures }]] },
  { name: "classify", method: "ClassificationService/Classify", fits: isOf("CLASSIFY_TEXT", "CLASSIFY_IMAGE", "MATCH"),
    fields: (model) => [isOf("CLASSIFY_TEXT")(model) ? text(model) : ["image", "picture"],
      model.takesPairs && ["textPair", "line", { help: T.help.textPair }],
      model.takesLabels && ["labels", "lines", { help: T.help.labels }],
      model.takesLabels && ["labelText", "line", { help: T.help.labelText, placeholder: model.labelText }],
      ["topK", "number", { least: 1, most: model.labels?.length || undefined }]] },
  { name: "tag", method: "ClassificationService/Tag", fits: isOf("TAG"), fields: (model) => [text(model)] },
  { name: "extract", method: "ClassificationService/Extract", fits: isOf("EXTRACT"),
    fields: () => [["question", "line"], ["context", "text"], ["topK", "number", { least: 1, most: 20 }]] },
  { name: "fill", method: "ClassificationService/FillMask", fits: isOf("FILL_MASK"), fields: (model) => [text(model), ["topK", "number", { least: 1, most: 100 }]] },
  { name: "embed", method: "EmbeddingService/Embed", fits: isOf("EMBED_TEXT", "EMBED_IMAGE", "MATCH"),
    fields: (model) => [hasText(model) && ["inputs", "lines", { help: T.help.inputs }], !isOf("EMBED_TEXT")(model) && ["images", "pictures"]] },
  { name: "score", method: "ScoreService/Score", fits: (model) => model.canScore,
    fields: (model) => [isOf("CAPTION")(model) ? ["image", "picture"] : isOf("TRANSCRIBE")(model) ? ["audio", "sound"] : text(model, model.vectorKinds && { label: T.fields.query }),
      ["targetText", "text", model.vectorKinds && { label: T.fields.document }],
      languages("sourceLanguage", model.sourceLanguages), languages("targetLanguage", model.targetLanguages)] },
  { name: "tokenize", method: "TokenizationService/Tokenize", fits: hasText,
    fields: (model) => [text(model)] },
];

export const verbsOf = (model) => VERBS.filter((verb) => verb.fits(model));
// Of which a model answers with an alignment.
export const explains = (verb, model) => model.canExplain && !["score", "tokenize"].includes(verb.name);
export const streamOf = (method) => method.replace("/", "/Stream");
