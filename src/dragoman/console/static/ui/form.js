// A form made from a JSON schema, for the arguments of a skill and the answers to questions.
import { html, useId, useRef, useState } from "../lib/preact.js";
import { oneLine, size } from "../lib/format.js";
import {
  MAX_DEPTH, Unparsed, alternativeOf, alternativesOf, choiceIndex, choicesOf, initialValue, isObject, itemSchema, kindOf,
  list, member, nameOf, pointer, propertyNames, resolve, splitNull, validate,
} from "../lib/schema.js";
import { Name, usePage } from "./base.js";
import { filePart } from "./file.js";
import { LongText } from "./text.js";

export { initialValue, validate };

const PAGE = 40; // fields, items or entries shown at once
const MAX_FILE = 20_000_000;

/**
 * The fields of a schema, controlled like an input: `value` is what `initialValue` returned or the last `onChange` said,
 * `errors` what `validate` returned. A value with errors is not to be sent. `label` names a value that is no object.
 */
export function Form({ schema, value, onChange, errors = {}, label = "Value" }) {
  const [asJson, setAsJson] = useState(false);
  const found = resolve(schema, schema);
  const isPlain = kindOf(found, schema) === "object";
  const shared = { schema: found, root: schema, value, onChange, path: "", errors, depth: 0, label, required: true };
  return html`<div class="form">
    ${isPlain && !asJson && errors[""] && html`<p class="error" role="alert">${errors[""]}</p>`}
    ${asJson ? html`<${JsonField} ...${shared} label="Arguments as JSON" />` : html`<${isPlain ? Properties : Field} ...${shared} />`}
    ${isPlain && propertyNames(found).length > 0 && html`<button type="button" class="link as-json" onClick=${() => setAsJson(!asJson)}>
      ${asJson ? "Back to the form" : "Edit as JSON"}</button>`}
  </div>`;
}

/** Move the focus to the first field that is wrong. */
export function focusFirstError(element) {
  element?.querySelector("[aria-invalid='true']")?.focus();
}

/** A copy of an object with one member changed, or without it. Names may be `__proto__`: only own members are touched. */
function withMember(object, name, value) {
  if (value !== undefined) return { ...object, [name]: value };
  return Object.fromEntries(Object.entries(object ?? {}).filter(([key]) => key !== name));
}

/** A function that changes a part of the value; several changes before the next render add up. */
function useChange(value, onChange) {
  const latest = useRef(value);
  latest.current = value;
  return (change) => onChange((latest.current = change(latest.current)));
}

/** What the field of a member has from the field of the whole. */
const within = ({ root, path, errors, depth }, name) => ({ root, errors, path: pointer(path, name), depth: depth + 1, label: name });

function Properties(props) {
  const { schema, value, onChange, path, errors } = props;
  const names = propertyNames(schema);
  const [limit, more] = usePage(names.length, "fields", PAGE);
  const change = useChange(value, onChange);
  if (!names.length) return html`<p class="muted">It takes no arguments.</p>`;
  const needed = new Set(list(schema.required));
  const isWrong = (start) => Object.keys(errors).some((key) => key === start || key.startsWith(`${start}/`));
  const shown = names.filter((name, index) => index < limit || isWrong(pointer(path, name)));
  return html`${shown.map((name) => html`<${Field} key=${name} ...${within(props, name)} schema=${schema.properties[name]}
    value=${member(value, name)} required=${needed.has(name)} onChange=${(next) => change((all) => withMember(all, name, next))} />`)}${more}`;
}

/** One value of any kind. */
function Field(props) {
  const { root, required, depth } = props;
  const found = resolve(props.schema, root);
  if (!found || depth > MAX_DEPTH) return html`<${JsonField} ...${props} schema=${found ?? {}} />`;
  const [schema, nullable] = splitNull(found, root);
  const kind = kindOf(schema, root);
  const value = nullable && props.value === null ? undefined : props.value;
  // What is emptied is left out, except where something has to be there.
  const onChange = nullable && required ? (next) => props.onChange(next ?? null) : props.onChange;
  const inner = { ...props, schema, value, onChange, required: required && !nullable, kind };
  return html`<${KINDS[kind] ?? TextField} ...${inner} />`;
}

const KINDS = {
  object: Group, map: Group, array: Group, union: Group, choice: Choice, boolean: Choice, file: FileField, null: JsonField, json: JsonField,
};

/** Label, control, help and error of one control; `control` gets the attributes that tie them together. */
function Control({ schema, label, required, path, errors, hint, control }) {
  const id = useId();
  const error = errors[path];
  const description = typeof schema.description === "string" ? schema.description : "";
  const about = [description && `${id}-help`, hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ");
  const tied = { id, "aria-describedby": about || undefined, "aria-invalid": error ? "true" : undefined, "aria-required": required ? "true" : undefined };
  return html`<div class="field">
    <div class="label"><label for=${id}><${Name} text=${label} limit=${80} /></label>${!required && html`<span class="muted">optional</span>`}</div>
    ${description && html`<p class="help"><${LongText} id="${id}-help" text=${description} limit=${300} /></p>`}
    ${control(tied)}
    ${hint && html`<p class="help" id="${id}-hint">${hint}</p>`}
    ${error && html`<p class="error" id="${id}-error">${error}</p>`}
  </div>`;
}

/** What was typed stays as it was typed, while the value is what it means: `1.0` is 1. */
function useTyped(value, onChange, parse, format) {
  const typed = useRef({ value: {}, text: "" });
  const text = typed.current.value === value ? typed.current.text : format(value);
  const onInput = (event) => {
    const written = event.currentTarget.value;
    typed.current = { text: written, value: written === "" ? undefined : parse(written) };
    onChange(typed.current.value);
  };
  return { value: text, onInput };
}

function hintOf(schema) {
  const { minimum, maximum, minLength, default: start } = schema;
  const isRange = minimum !== undefined && maximum !== undefined;
  const said = [
    [isRange ? "" : "at least ", minimum], [isRange ? "to " : "at most ", maximum],
    ["more than ", schema.exclusiveMinimum], ["less than ", schema.exclusiveMaximum], ["a multiple of ", schema.multipleOf],
    ["at least ", minLength > 1 ? minLength : undefined, " characters"], ["at most ", schema.maxLength, " characters"],
    ["matches ", schema.pattern], ["default ", start === null || start === "" ? undefined : start],
  ].filter(([, value]) => value !== undefined);
  const text = said.map(([before, value, after = ""]) => before + asText(value) + after).join(", ").replace(", to", " to");
  return text && oneLine(text[0].toUpperCase() + text.slice(1), 200);
}

const local = (date) => new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
const isDate = (text) => !text || !Number.isNaN(new Date(text).getTime());
const asText = (value) => (value instanceof Unparsed ? value.text : typeof value === "string" ? value : JSON.stringify(value) ?? "");
const INPUTS = new Map([["date", "date"], ["email", "email"], ["uri", "url"], ["url", "url"], ["password", "password"]]);

/** Parsing and formatting by what the field takes: [attributes, parse, format]. */
function inputOf(kind, { format }, value) {
  if (kind === "integer" || kind === "number") {
    const isWhole = kind === "integer";
    const form = isWhole ? /^[+-]?\d+$/ : /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
    const problem = isWhole ? "Enter a whole number." : "Enter a number, such as 2.5.";
    const parse = (text) => (form.test(text.trim()) && Number.isFinite(Number(text)) ? Number(text) : new Unparsed(text, problem));
    return [{ type: "text", inputmode: isWhole ? "numeric" : "decimal", class: "number" }, parse, asText];
  }
  if (format === "date-time" && isDate(value)) {
    const parse = (text) => (isDate(text) ? new Date(text).toISOString() : undefined);
    return [{ type: "datetime-local", step: 1 }, parse, (iso) => (iso ? local(new Date(iso)) : "")];
  }
  if (format === "time") {
    return [{ type: "time", step: 1 }, (text) => (text.length === 5 ? `${text}:00` : text), (text) => asText(text).slice(0, 8)];
  }
  return [{ type: INPUTS.get(format) ?? "text" }, (text) => text, asText];
}

function TextField(props) {
  const { kind, schema, value, onChange } = props;
  const [attributes, parse, format] = inputOf(kind, schema, value);
  const typed = useTyped(value, onChange, parse, format);
  const isLong = attributes.type === "text" && kind === "string" && !schema.format && !schema.pattern && !(schema.maxLength <= 100);
  const [example] = list(schema.examples);
  const placeholder = example === undefined ? undefined : `for example ${oneLine(asText(example), 60)}`;
  // As in the chat: Enter sends, Shift+Enter is a new line.
  const onKeyDown = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    event.currentTarget.form?.requestSubmit();
  };
  return html`<${Control} ...${props} hint=${hintOf(schema)} control=${(tied) =>
    isLong
      ? html`<textarea ...${tied} ...${typed} rows="1" placeholder=${placeholder} dir="auto" onKeyDown=${onKeyDown}></textarea>`
      : html`<input ...${tied} ...${attributes} ...${typed} placeholder=${placeholder} autocomplete="off" spellcheck=${false} />`} />`;
}

function Choice(props) {
  const { kind, schema, root, value, onChange, required } = props;
  if (kind === "boolean" && (required || typeof schema.default === "boolean")) {
    return html`<${Control} ...${props} required control=${(tied) =>
      html`<input type="checkbox" ...${tied} checked=${value === true} onChange=${(event) => onChange(event.currentTarget.checked)} />`} />`;
  }
  const choices = kind === "boolean" ? [{ value: true, label: "Yes" }, { value: false, label: "No" }] : choicesOf(schema, root);
  const index = value === undefined ? -1 : choiceIndex(choices, value);
  // Nothing is chosen by "", which is no index.
  const onSelect = (event) => onChange(choices[event.currentTarget.value]?.value);
  return html`<${Control} ...${props} hint=${hintOf(schema)} control=${(tied) => html`<select ...${tied} value=${index < 0 ? "" : String(index)} onChange=${onSelect}>
    ${(index < 0 || !required) && html`<option value="">${required ? "Choose …" : "(left out)"}</option>`}
    ${choices.map((each, position) => html`<option key=${position} value=${String(position)}>${oneLine(each.label, 100)}</option>`)}
  </select>`} />`;
}

function JsonField(props) {
  const { value, onChange, errors, path } = props;
  const parse = (text) => {
    try {
      return JSON.parse(text);
    } catch (error) {
      return new Unparsed(text, `This is not JSON: ${error.message.slice(0, 200)}`);
    }
  };
  const format = (each) => (each instanceof Unparsed ? each.text : JSON.stringify(each, null, 2) ?? "");
  const typed = useTyped(value, onChange, parse, format);
  // What is wrong inside has no field of its own.
  const inside = Object.keys(errors).filter((key) => key.startsWith(`${path}/`)).map((key) => `${key.slice(path.length)}: ${errors[key]}`);
  return html`<${Control} ...${props} errors=${{ [path]: errors[path] ?? inside.join(" ") }} hint="JSON" control=${(tied) =>
    html`<textarea class="mono" ...${tied} ...${typed} rows="4" spellcheck=${false} dir="ltr"></textarea>`} />`;
}

/** A file in a value: as base64 for a parameter of type `bytes`, as a data: URI with its name for one of type `File`. */
function FileField(props) {
  const { schema, value, onChange } = props;
  const isNamed = schema.format === "file";
  const written = (part) => (isNamed ? `data:${part.mediaType};name=${encodeURIComponent(part.filename)};base64,${part.raw}` : part.raw);
  const accept = list(schema.mediaTypes).filter((each) => typeof each === "string").join() || undefined;
  const [said, setSaid] = useState("");
  async function read(event) {
    const [file] = event.currentTarget.files;
    setSaid(file?.size > MAX_FILE ? `This file is larger than ${size(MAX_FILE)}.` : "");
    if (!file || file.size > MAX_FILE) return onChange(undefined);
    filePart(file).then((part) => onChange(written(part)), (error) => setSaid(error.message));
  }
  const hint = said || `${typeof value === "string" ? size(Math.floor(value.length * 0.75)) : "A file"}${isNamed ? "" : ", sent as base64"}`;
  return html`<${Control} ...${props} hint=${hint} control=${(tied) => html`<input type="file" accept=${accept} ...${tied} onChange=${read} />`} />`;
}

/** Objects, maps, lists and alternatives: a group of fields. An object or tuple that is optional is added and left out by a button. */
function Group(props) {
  const { kind, schema, root, value, onChange, path, errors, label, required } = props;
  const id = useId();
  const error = errors[path];
  // As many values as there are places: all of them, or none.
  const isTuple = kind === "array" && list(schema.prefixItems).length > 0;
  const isWhole = kind === "object" || isTuple;
  const isThere = !isWhole || (isTuple ? Array.isArray(value) : isObject(value));
  const Content = { object: Properties, map: Entries, array: Items, union: Alternatives }[kind];
  const name = oneLine(label, 60);
  const { default: start, ...bare } = schema;
  return html`<fieldset class="group ${error ? "wrong" : ""}" aria-describedby=${error ? `${id}-error` : undefined}>
    <legend><${Name} text=${label} limit=${80} />${!required && html` <span class="muted">optional</span>`}</legend>
    ${typeof schema.description === "string" && html`<p class="help"><${LongText} text=${schema.description} limit=${300} /></p>`}
    ${isThere && html`<${Content} ...${props} />`}
    ${error && kind !== "union" && html`<p class="error" id="${id}-error">${error}</p>`}
    ${!isThere && html`<button type="button" class="small" aria-invalid=${error ? "true" : undefined}
      onClick=${() => onChange(start ?? initialValue(bare, root) ?? {})}>Add ${name}</button>`}
    ${isThere && !required && isWhole && html`<button type="button" class="small" onClick=${() => onChange(undefined)}>Leave out ${name}</button>`}
  </fieldset>`;
}

function Items(props) {
  const { schema, root, value, onChange, path, errors, depth, label, required } = props;
  const box = useRef(null);
  const items = list(value);
  const [limit, more, setLimit] = usePage(items.length, "items", PAGE);
  const change = useChange(items, (next) => onChange(next.length || required ? next : undefined));
  const fixed = list(schema.prefixItems).length;
  const name = oneLine(label, 40);
  // The focus stays with the item, or goes to its neighbor.
  const focus = (index, what) => requestAnimationFrame(() => {
    const rows = box.current?.children ?? [];
    const tools = rows[Math.min(index, rows.length - 1)]?.querySelector(":scope > .tools");
    (tools?.querySelector(`.${what}:enabled`) ?? tools?.querySelector("button:enabled") ?? box.current?.nextElementSibling)?.focus();
  });
  function move(index, to) {
    change((all) => all.toSpliced(index, 1).toSpliced(to, 0, all[index]));
    focus(to, to < index ? "up" : "down");
  }
  function remove(index) {
    change((all) => all.toSpliced(index, 1));
    focus(index, "remove");
  }
  function add() {
    change((all) => [...all, initialValue(itemSchema(schema, all.length), root, true, depth + 1)]);
    setLimit(Math.max(limit, items.length + 1));
    requestAnimationFrame(() => box.current?.lastElementChild?.querySelector("input, textarea, select, button")?.focus());
  }
  const tool = (kind, sign, words, action, disabled) =>
    html`<button type="button" class="icon ${kind}" aria-label=${words} disabled=${disabled} onClick=${action}>${sign}</button>`;
  return html`<div class="items" ref=${box}>${items.slice(0, limit).map((item, index) => html`<div class="item" key=${index}>
      <${Field} ...${within(props, index)} schema=${itemSchema(schema, index)} value=${item} label="${name} ${index + 1}" required
        onChange=${(next) => change((all) => all.with(index, next))} />
      ${index >= fixed && html`<div class="tools">
        ${tool("up", "↑", `Move ${name} ${index + 1} up`, () => move(index, index - 1), index === fixed)}
        ${tool("down", "↓", `Move ${name} ${index + 1} down`, () => move(index, index + 1), index === items.length - 1)}
        ${tool("remove", "✕", `Remove ${name} ${index + 1}`, () => remove(index))}
      </div>`}
    </div>`)}</div>
    ${schema.items !== false && !(items.length >= schema.maxItems) && html`<button type="button" class="small" aria-invalid=${errors[path] ? "true" : undefined} onClick=${add}>Add an item to ${name}</button>`}
    ${more}`;
}

/** An object with names that the caller chooses. */
function Entries(props) {
  const { schema, root, value, onChange, depth, label, required } = props;
  const [name, setName] = useState("");
  const entries = isObject(value) ? value : {};
  const names = Object.keys(entries);
  const [limit, more] = usePage(names.length, "entries", PAGE);
  const change = useChange(entries, (next) => onChange(Object.keys(next).length || required ? next : undefined));
  const set = (key, next) => change((all) => withMember(all, key, next));
  const isNew = name !== "" && !Object.hasOwn(entries, name);
  function add() {
    // An entry that is undefined would not be one.
    set(name, initialValue(schema.additionalProperties, root, true, depth + 1) ?? new Unparsed());
    setName("");
  }
  const onKeyDown = (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    if (isNew) add();
  };
  return html`${names.slice(0, limit).map((each) => html`<div class="item" key=${each}>
      <${Field} ...${within(props, each)} schema=${schema.additionalProperties} value=${entries[each]} required onChange=${(next) => set(each, next ?? new Unparsed())} />
      <div class="tools"><button type="button" class="icon" aria-label="Remove ${oneLine(each, 60)}" onClick=${() => set(each, undefined)}>✕</button></div>
    </div>`)}
    ${more}
    <div class="row"><input aria-label="Name of a new entry of ${oneLine(label, 60)}" placeholder="name" value=${name} onInput=${(event) => setName(event.currentTarget.value)} onKeyDown=${onKeyDown} />
      <button type="button" class="small" disabled=${!isNew} onClick=${add}>Add entry</button></div>`;
}

function Alternatives(props) {
  const { schema, root, value, onChange, depth, label } = props;
  const [chosen, setChosen] = useState(null);
  const alternatives = alternativesOf(schema, root);
  const index = chosen ?? alternativeOf(alternatives, value, root);
  const current = alternatives[index];
  function choose(event) {
    const next = Number(event.currentTarget.value);
    setChosen(next);
    onChange(initialValue(alternatives[next] ?? {}, root, true, depth + 1));
  }
  const isFlat = isObject(value) && kindOf(current, root) === "object";
  const inner = { ...props, key: index, schema: current ?? false, label: nameOf(current, root), depth: isFlat ? depth : depth + 1 };
  return html`<select aria-label="Kind of ${oneLine(label, 60)}" value=${String(index)} onChange=${choose}>
      ${alternatives.map((each, position) => html`<option key=${position} value=${String(position)}>${oneLine(nameOf(each, root), 80)}</option>`)}
    </select>
    <${isFlat ? Properties : Field} ...${inner} />`;
}
