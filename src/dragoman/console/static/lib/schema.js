// What a form needs to know of a JSON schema. Schemas come from agents: every walk here is bounded, references may
// loop, and a property may have any name. What a form cannot show is edited as JSON, and the agent has the last word.

const MAX_ERRORS = 50;
const MAX_STEPS = 20_000;
const MAX_CHOICES = 1000;
const MISSING = "This needs a value.";
// What a value of a type is called where there is another.
const TYPES = new Map([
  ["string", "text"], ["integer", "a whole number"], ["number", "a number"], ["boolean", "true or false"],
  ["array", "a list"], ["object", "an object"], ["null", "null"],
]);

/** What was typed where it is not a value yet, such as `1.` in a field for numbers. It is never valid. */
export class Unparsed {
  constructor(text = "", problem = MISSING) {
    this.text = text;
    this.problem = problem;
  }

  toJSON() {
    return this.text;
  }
}

/** Whether a value is an object with members. */
export const isObject = (value) =>
  value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof Unparsed);
/** The member of an object with any name; undefined where there is none. */
export const member = (object, key) => (isObject(object) && Object.hasOwn(object, key) ? object[key] : undefined);
/** A list where there should be one: schemas have anything anywhere. */
export const list = (value) => (Array.isArray(value) ? value : []);
/** The names of the properties of a resolved schema. */
export const propertyNames = (schema) => (isObject(schema.properties) ? Object.keys(schema.properties) : []);

// -- references ---------------------------------------------------------------------------------------------------

function lookUp(root, reference) {
  if (typeof reference !== "string" || !reference.startsWith("#")) return undefined; // nothing is fetched
  let found = root;
  for (const step of reference.split("/").slice(1)) {
    let name = step;
    try {
      name = decodeURIComponent(step);
    } catch {
      // as it stands
    }
    name = name.replaceAll("~1", "/").replaceAll("~0", "~");
    found = Array.isArray(found) ? found[Number(name)] : member(found, name);
  }
  return found;
}

/**
 * The schema with its references followed and its `allOf` merged, one level deep. Returns null where that cannot be
 * done: a loop, or a reference to nothing. What stands beside a reference wins, such as a description.
 */
export function resolve(schema, root, budget = { steps: 60 }) {
  if (schema === true || schema === undefined) return {};
  if (!isObject(schema) || (budget.steps -= 1) < 0) return null;
  let { $ref: reference, allOf, ...merged } = schema;
  if (reference !== undefined) {
    const target = lookUp(root, reference);
    const found = target === undefined ? null : resolve(target, root, budget);
    if (!found) return null;
    merged = { ...found, ...merged };
  }
  for (const each of list(allOf)) {
    const part = resolve(each, root, budget);
    if (!part) return null;
    merged = merge(part, merged);
  }
  return merged;
}

function merge(left, right) {
  const both = { ...left, ...right };
  if (isObject(left.properties) && isObject(right.properties)) {
    both.properties = { ...left.properties, ...right.properties };
  }
  if (left.required && right.required) both.required = [...new Set([...list(left.required), ...list(right.required)])];
  return both;
}

// -- kinds --------------------------------------------------------------------------------------------------------

/** The choices of an enumeration as {value, label}, else null. One constant is an enumeration of one. */
export function choicesOf(schema, root) {
  const choice = (value, title) => {
    const label = [title, value].find((each) => typeof each === "string" && each !== "");
    return { value, label: label ?? JSON.stringify(value) };
  };
  if (Object.hasOwn(schema, "const")) return [choice(schema.const)];
  if (list(schema.enum).length) {
    // Forms of MCP name their choices beside them.
    return schema.enum.slice(0, MAX_CHOICES).map((value, index) => choice(value, list(schema.enumNames)[index]));
  }
  const options = list(schema.oneOf ?? schema.anyOf);
  if (!options.length || options.length > MAX_CHOICES) return null;
  const choices = [];
  for (const option of options) {
    const each = resolve(option, root);
    if (!each || !Object.hasOwn(each, "const")) return null;
    choices.push(choice(each.const, each.title));
  }
  return choices;
}

/** The index of a value among choices; -1 if it is none of them. */
export function choiceIndex(choices, value) {
  const written = JSON.stringify(value);
  return choices.findIndex((each) => JSON.stringify(each.value) === written);
}

/** The alternatives of a resolved schema (anyOf, oneOf, or a list of types), each resolved; null if it has none. */
export function alternativesOf(schema, root) {
  // A title or description of the whole is not that of an alternative.
  const { anyOf, oneOf, default: _, title, description, ...base } = schema;
  const types = list(schema.type);
  const options = list(anyOf ?? oneOf ?? (types.length > 1 ? types.map((type) => ({ type })) : []));
  if (!options.length || options.length > 100) return null;
  return options.map((option) => {
    const each = resolve(option, root);
    return each && merge(base, each);
  });
}

/** Whether null is one of the alternatives, and the schema without it. */
export function splitNull(schema, root) {
  const alternatives = alternativesOf(schema, root) ?? [];
  const rest = alternatives.filter((each) => kindOf(each, root) !== "null");
  if (rest.length === alternatives.length || rest.length === 0) return [schema, false];
  if (rest.length > 1) {
    const { oneOf, type, ...base } = schema;
    return [{ ...base, anyOf: rest.map((each) => each ?? false) }, true];
  }
  const only = { ...rest[0] };
  for (const key of ["title", "description", "default"]) if (Object.hasOwn(schema, key)) only[key] = schema[key];
  return [only, true];
}

/**
 * How a resolved schema is shown: choice, union, boolean, integer, number, string, file, object, map, array, null, or
 * json for everything else. null, a schema that cannot be resolved, is json.
 */
export function kindOf(schema, root) {
  if (!schema) return "json";
  if (schema.const === null) return "null";
  if (choicesOf(schema, root)) return "choice";
  if (alternativesOf(schema, root)) return "union";
  const [type] = typesOf(schema);
  if (type === "string") {
    return schema.contentEncoding === "base64" || ["binary", "byte", "file"].includes(schema.format) ? "file" : "string";
  }
  if (type === "object") {
    if (propertyNames(schema).length) return "object";
    if (isObject(schema.additionalProperties)) return "map";
    return schema.additionalProperties === false || isObject(schema.properties) ? "object" : "json";
  }
  if (type === "array") return hasItems(schema) ? "array" : "json";
  return TYPES.has(type) ? type : "json";
}

const hasItems = (schema) => isObject(schema.items) || Array.isArray(schema.prefixItems);

/** The types that a schema takes: those it names, or the one that its other members speak of. Empty for any. */
function typesOf(schema) {
  if (schema.type !== undefined) return [schema.type].flat();
  return isObject(schema.properties) ? ["object"] : hasItems(schema) ? ["array"] : [];
}

function isOfType(schema, value) {
  const type = value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
  const types = typesOf(schema);
  return !types.length || types.includes(type) || (Number.isInteger(value) && types.includes("integer"));
}

/** The schema of an item of an array, by its index. */
export function itemSchema(schema, index) {
  const fixed = list(schema.prefixItems);
  return index < fixed.length ? fixed[index] : schema.items ?? {};
}

/** A short name of what a schema takes, for the choice between alternatives. */
export function nameOf(schema, root) {
  if (typeof schema?.title === "string" && schema.title) return schema.title;
  const kind = kindOf(schema, root);
  if (kind === "choice") return choicesOf(schema, root).slice(0, 3).map((each) => each.label).join(", ");
  if (kind === "array") return `list of ${nameOf(resolve(schema.items, root), {})}`;
  // Tagged unions say what they are by a constant.
  for (const name of kind === "object" ? propertyNames(schema).slice(0, 20) : []) {
    const each = resolve(schema.properties[name], root);
    const choices = each && choicesOf(each, root);
    if (choices?.length === 1) return choices[0].label;
  }
  if (kind === "string" && typeof schema.format === "string") return schema.format;
  return { json: "JSON", map: "object", string: "text", integer: "whole number", boolean: "yes or no" }[kind] ?? kind;
}

// -- values -------------------------------------------------------------------------------------------------------

export const MAX_DEPTH = 8;

/** The value that a form starts with: defaults and constants, and the objects that must be there. */
export function initialValue(schema, root = schema, required = true, depth = 0) {
  const found = resolve(schema, root);
  if (!found) return undefined;
  if (Object.hasOwn(found, "default") && (found.default !== null || !required)) return found.default ?? undefined;
  if (!required || depth > MAX_DEPTH) return undefined;
  const [plain, nullable] = splitNull(found, root);
  if (nullable) return null;
  const inner = (each, isNeeded = true) => initialValue(each, root, isNeeded, depth + 1);
  switch (kindOf(plain, root)) {
    case "choice": {
      const choices = choicesOf(plain, root);
      return choices.length === 1 ? choices[0].value : undefined;
    }
    case "union": return inner(alternativesOf(plain, root)[0] ?? {});
    case "boolean": return false;
    case "json": return plain.type === "object" ? {} : undefined;
    case "map": return {};
    case "array": return list(plain.prefixItems).slice(0, 50).map((each) => inner(each));
    case "object": {
      const needed = new Set(list(plain.required));
      const entries = propertyNames(plain).slice(0, 2000).map((name) => [name, inner(plain.properties[name], needed.has(name))]);
      return Object.fromEntries(entries.filter(([, value]) => value !== undefined));
    }
    default: return undefined;
  }
}

/** The index of the alternative that a value is of: the first that it is valid for, else one of its type. */
export function alternativeOf(alternatives, value, root, budget) {
  const isValid = (each) => each && value !== undefined && !Object.keys(validate(each, value, root, budget)).length;
  const valid = alternatives.findIndex(isValid);
  return valid >= 0 ? valid : Math.max(0, alternatives.findIndex((each) => each && isOfType(each, value)));
}

// -- validation ---------------------------------------------------------------------------------------------------

/** The pointer of a member, as the keys of errors have it. */
export const pointer = (path, name) => `${path}/${String(name).replaceAll("~", "~0").replaceAll("/", "~1")}`;

/**
 * What is wrong with a value: messages by JSON pointer ("" is the value itself), at most 50; empty when nothing is
 * known to be wrong. What costs too much to find out is left to the agent. There is one budget for all that is tried:
 * alternatives inside alternatives would multiply.
 */
export function validate(schema, value, root = schema, budget = { steps: MAX_STEPS, depth: 0 }) {
  const check = { root, errors: Object.create(null), count: 0, budget };
  visit(check, schema, value, "", true);
  return check.errors;
}

function report(check, path, message) {
  if (check.count >= MAX_ERRORS || check.errors[path]) return;
  check.errors[path] = message;
  check.count += 1;
}

function visit(check, schema, value, path, required) {
  const { budget } = check;
  // An alternative may be the whole again: the depth is not that of the value.
  if ((budget.steps -= 1) < 0 || budget.depth > 100 || check.count >= MAX_ERRORS) return;
  budget.depth += 1;
  visitValue(check, schema, value, path, required);
  budget.depth -= 1;
}

function visitValue(check, schema, value, path, required) {
  if (value === undefined) return required && report(check, path, MISSING);
  if (value instanceof Unparsed) return report(check, path, value.problem);
  const found = resolve(schema, check.root);
  if (!found) return;
  const choices = choicesOf(found, check.root);
  if (choices) {
    if (choices.length < MAX_CHOICES && choiceIndex(choices, value) < 0) report(check, path, "Choose one of the values.");
    return;
  }
  const alternatives = alternativesOf(found, check.root);
  if (alternatives) {
    check.budget.steps -= 2 * alternatives.length; // they were resolved
    if (alternatives.includes(null)) return; // one of them takes something unknown
    return visit(check, alternatives[alternativeOf(alternatives, value, check.root, check.budget)], value, path, required);
  }
  const problem = problemOf(found, value);
  if (problem) return report(check, path, problem);
  if (Array.isArray(value)) {
    value.forEach((each, index) => visit(check, itemSchema(found, index), each, pointer(path, index), true));
  } else if (isObject(value)) {
    visitMembers(check, found, value, path);
  }
}

function visitMembers(check, schema, value, path) {
  const needed = new Set(list(schema.required));
  const known = new Set(propertyNames(schema));
  for (const name of known) {
    visit(check, schema.properties[name], member(value, name), pointer(path, name), needed.delete(name));
    if (check.budget.steps < 0) return;
  }
  for (const name of needed) if (member(value, name) === undefined) report(check, pointer(path, name), MISSING);
  const others = schema.additionalProperties;
  for (const name of Object.keys(value)) {
    if (known.has(name) || isObject(schema.patternProperties)) continue;
    if (others === false) report(check, path, `There is no property ${JSON.stringify(name.slice(0, 60))} here.`);
    else if (isObject(others)) visit(check, others, value[name], pointer(path, name), true);
  }
}

/** What is wrong with a value itself, without its members; null if nothing is. */
function problemOf(schema, value) {
  if (schema.type !== undefined && !isOfType(schema, value)) {
    return `This has to be ${typesOf(schema).map((each) => TYPES.get(each) ?? "something else").join(" or ")}.`;
  }
  if (typeof value === "number") return problemOfNumber(schema, value);
  if (typeof value === "string") return problemOfText(schema, value);
  if (!Array.isArray(value)) return null;
  const isTwice = schema.uniqueItems === true && value.length <= 2000
    && new Set(value.map((each) => JSON.stringify(each))).size < value.length;
  return outside(value.length, schema.minItems, schema.maxItems, " item") ?? (isTwice ? "Each item only once." : null);
}

/** Whether an amount is too small or too large, in words. */
function outside(amount, least, most, unit = "") {
  const say = (limit) => `${limit}${unit}${unit && limit !== 1 ? "s" : ""}.`;
  return amount < least ? `At least ${say(least)}` : amount > most ? `At most ${say(most)}` : null;
}

function problemOfNumber(schema, value) {
  if (Number.isInteger(value) && !Number.isSafeInteger(value)) return "A browser cannot send a number of this size exactly.";
  if (value <= schema.exclusiveMinimum) return `More than ${schema.exclusiveMinimum}.`;
  if (value >= schema.exclusiveMaximum) return `Less than ${schema.exclusiveMaximum}.`;
  const ratio = schema.multipleOf > 0 ? value / schema.multipleOf : 0;
  if (Math.abs(ratio - Math.round(ratio)) > 1e-9 * Math.max(1, Math.abs(ratio))) return `A multiple of ${schema.multipleOf}.`;
  return outside(value, schema.minimum, schema.maximum);
}

function problemOfText(schema, value) {
  const { format, pattern, minLength, maxLength } = schema;
  if (value === "" && minLength === 1) return MISSING;
  const length = value.length > 100_000 ? value.length : [...value].length; // code points, as JSON Schema counts
  const problem = outside(length, minLength, maxLength, " character");
  if (problem) return problem;
  // Dates and times have fields of their own, which know what one is.
  if (format === "email" && !/^[^\s@]{1,64}@[^\s@]{1,255}$/.test(value)) return "Enter an email address, such as name@example.com.";
  if (format === "uuid" && !/^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/i.test(value)) return "Enter a UUID.";
  if ((format === "uri" || format === "url") && !URL.canParse(value)) return "Enter a URL, such as https://example.com.";
  return typeof pattern === "string" && matches(pattern, value) === false ? `This has to match ${pattern.slice(0, 200)}` : null;
}

/**
 * Whether a text matches a pattern of an agent; undefined where finding out could take long, as in `(a+)+$`. Only
 * patterns without a repeated group are run, and only where the ways to match are few: each repetition may end
 * anywhere, each option and each alternative doubles them.
 */
function matches(pattern, text) {
  if (pattern.length > 500 || text.length > 10_000) return undefined;
  const bare = pattern.replace(/\\[\s\S]/g, "x").replace(/\[\^?\]?[^\]]*\]/g, "x").replace(/\(\?(<?[=!]|:|<\w+>)/g, "(").replace(/\{(\d{1,3})\}/g, "");
  if (/\)(?=[*+{])/.test(bare)) return undefined;
  let ways = bare.startsWith("^") && !bare.includes("|") ? 1 : text.length + 1;
  for (const sign of bare.match(/[*+{?|]/g) ?? []) ways *= sign === "?" || sign === "|" ? 2 : text.length + 1;
  if (ways > 1_000_000) return undefined;
  try {
    return new RegExp(pattern, "u").test(text);
  } catch {
    return undefined;
  }
}
