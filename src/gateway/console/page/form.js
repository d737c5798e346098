// From a tool's schema to the fields of a form, and from what was typed to the JSON text of the arguments.
//
// Invariant: a number is never read as a number, since 9007199254740993 would become another one.

const MOST_REFERENCES = 16;
const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const WORDS = {
  integer: "a whole number",
  number: "a number",
  boolean: "true or false",
  array: "a JSON array",
  object: "a JSON object",
  string: "a text",
  null: "null",
};

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

function resolved(schema, root) {
  for (let left = MOST_REFERENCES; left > 0 && typeof schema?.$ref === "string" && schema.$ref.startsWith("#"); left -= 1) {
    const path = schema.$ref.slice(1).split("/").slice(1).map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
    const target = path.reduce((at, part) => (isObject(at) && Object.hasOwn(at, part) ? at[part] : undefined), root);
    if (target === undefined) break;
    schema = target;
  }
  return schema;
}

const typeOf = (value) => {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  return typeof value;
};

/** The types that a schema allows; an empty list means any. */
function types(schema, root, depth = 0) {
  schema = resolved(schema, root);
  if (!isObject(schema)) return [];
  if (typeof schema.type === "string") return [schema.type];
  if (Array.isArray(schema.type)) return schema.type.filter((type) => typeof type === "string");
  const parts = [schema.anyOf, schema.oneOf].find(Array.isArray);
  if (parts && depth < MOST_REFERENCES) {
    const each = parts.map((part) => types(part, root, depth + 1));
    return each.some((part) => part.length === 0) ? [] : each.flat();
  }
  return [...(Array.isArray(schema.enum) ? schema.enum : []), ...("const" in schema ? [schema.const] : [])].map(typeOf);
}

/** The fields of a form: one for each top-level property. */
export function fields(schema) {
  const properties = isObject(schema?.properties) ? schema.properties : {};
  const required = Array.isArray(schema?.required) ? schema.required : [];
  return Object.entries(properties).map(([name, property]) => {
    const own = resolved(property, schema);
    const values = Array.isArray(own?.enum) ? own.enum : [];
    const allowed = types(property, schema);
    return {
      name,
      types: allowed,
      required: required.includes(name),
      about: typeof own?.description === "string" ? own.description : "",
      choices: allowed.includes("boolean") ? ["true", "false"] : values.filter((value) => typeof value !== "object").map(String),
      // What can have several lines gets room for them.
      tall: allowed.length === 0 || allowed.some((type) => ["string", "array", "object"].includes(type)),
    };
  });
}

function isOf(text, type) {
  if (type === "number") return NUMBER.test(text);
  // For JSON Schema, 1.0 is a whole number.
  if (type === "integer") return NUMBER.test(text) && Number.isInteger(Number(text));
  if (type === "boolean") return text === "true" || text === "false";
  if (type === "null") return text === "null";
  try {
    return typeOf(JSON.parse(text)) === type;
  } catch {
    return false;
  }
}

/** The JSON text of one value, as it was typed. Throws where it does not fit. */
export function value({ types }, text) {
  const trimmed = text.trim();
  const wanted = types.length ? types : ["number", "boolean", "null", "array", "object", "string"];
  const fits = wanted.some((type) => type !== "string" && isOf(trimmed, type));
  if (fits) return trimmed;
  if (wanted.includes("string")) return JSON.stringify(text);
  throw new Error(`must be ${wanted.map((type) => WORDS[type] ?? type).join(" or ")}`);
}

/** The JSON text of all arguments, and what is wrong with which field. Empty optional fields are left out. */
export function assemble(all, typed) {
  const members = [];
  const wrong = new Map();
  for (const field of all) {
    const text = typed(field);
    if (text === "" && !field.required) continue;
    try {
      members.push(`${JSON.stringify(field.name)}:${value(field, text)}`);
    } catch (error) {
      wrong.set(field.name, text === "" ? "is required" : error.message);
    }
  }
  return { text: `{${members.join(",")}}`, wrong };
}

/** A JSON text with line breaks and indents; everything else in it stays as it came. */
export function pretty(text) {
  let [out, depth] = ["", 0];
  const line = () => `\n${"  ".repeat(depth)}`;
  // Strings, brackets with nothing in them, marks, and runs of anything else.
  for (const [part] of text.matchAll(/"(?:[^"\\]|\\.)*"|\{\s*\}|\[\s*\]|[{}[\],:]|[^\s"{}[\],:]+/g)) {
    if (part === "{" || part === "[") (depth += 1), (out += part + line());
    else if (part === "}" || part === "]") (depth -= 1), (out += line() + part);
    else if (part === ",") out += part + line();
    else if (part === ":") out += ": ";
    else out += part.startsWith('"') ? part : part.replaceAll(/\s/g, "");
  }
  return out;
}
