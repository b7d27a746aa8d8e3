// Strict reading of JSON: the reader of a field says what it must be, and an error is one sentence.

import table from "../../seqlab_export/runner/manifest_fields.json";

import { refuse, sentenceOf } from "./error.js";

/** A number written with a point or an exponent: 1.0 is not 1. */
class Real {
  constructor(readonly value: number) {}
}

/** A value of a document, with its place for error messages. */
export class Field {
  private constructor(
    private readonly value: unknown,
    readonly place: string,
    private readonly takesUnknown = false,
  ) {}

  /** Reads a document of UTF-8. */
  static of(bytes: Uint8Array, place: string): Field {
    try {
      const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
      JSON.parse(text);
      return new Field(readReals(text), place);
    } catch (error) {
      refuse(`${place} is not JSON: ${sentenceOf(error)}`); // This includes invalid UTF-8 and excessive depth.
    }
  }

  /** The same value, in which objects may have unknown members, as a newer minor version writes them. */
  ofNewerMinor(): Field {
    return new Field(this.value, this.place, true);
  }

  /** True if both are the same JSON; 1 and 1.0 differ. */
  equals(other: Field): boolean {
    return JSON.stringify(this.value) === JSON.stringify(other.value);
  }

  get isNull(): boolean {
    return this.value === null;
  }

  get isString(): boolean {
    return typeof this.value === "string";
  }

  /** True if the value equals this string or number. */
  is(value: string | number): boolean {
    return this.value === value;
  }

  /** The members of an object, in order. */
  members(): [string, Field][] {
    return Object.entries(this.object()).map(([name, value]) => [name, this.inner(value, `.${name}`)]);
  }

  /** A function that gives the members by name, of an object that has `names`, perhaps `optional`, and no others. */
  exactly(names: readonly string[], optional: readonly string[] = []): (name: string) => Field {
    const object = this.object();
    const missing = names.filter((name) => !Object.hasOwn(object, name));
    if (missing.length > 0) refuse(`${this.place} lacks ${missing.join(", ")}`);
    const unknown = Object.keys(object).filter((name) => !names.includes(name) && !optional.includes(name));
    if (unknown.length > 0 && !this.takesUnknown) {
      refuse(`${this.place} has ${cut(unknown.join(", "))}, which nothing here knows`);
    }
    return (name) => this.inner(object[name], `.${name}`);
  }

  has(name: string): boolean {
    return Object.hasOwn(this.object(), name);
  }

  get(name: string): Field {
    const object = this.object();
    if (!Object.hasOwn(object, name)) refuse(`${this.place} lacks ${name}`);
    return this.inner(object[name], `.${name}`);
  }

  items(): Field[] {
    if (!Array.isArray(this.value)) this.refuse("a list");
    return this.value.map((item, place) => this.inner(item, `[${place}]`));
  }

  string(): string {
    if (typeof this.value !== "string") this.refuse("a string");
    return this.value;
  }

  strings(): string[] {
    return this.items().map((item) => item.string());
  }

  oneOf<Name extends string>(names: readonly Name[]): Name {
    const found = names.find((name) => name === this.value);
    return found ?? this.refuse(`one of ${names.join(", ")}`);
  }

  boolean(): boolean {
    if (typeof this.value !== "boolean") this.refuse("true or false");
    return this.value;
  }

  int(least: number): number {
    if (typeof this.value !== "number" || this.value < least || this.value > 2 ** table.most_number_bits) {
      this.refuse(`a whole number from ${least} to 2^${table.most_number_bits}`);
    }
    return this.value;
  }

  real(): number {
    const number = this.value instanceof Real ? this.value.value : this.value;
    if (typeof number !== "number" || !Number.isFinite(number)) this.refuse("a finite number");
    return number;
  }

  private inner(value: unknown, place: string): Field {
    return new Field(value, this.place + place, this.takesUnknown);
  }

  private object(): Record<string, unknown> {
    const other = this.value === null || Array.isArray(this.value) || this.value instanceof Real;
    if (typeof this.value !== "object" || other) this.refuse("an object");
    return this.value as Record<string, unknown>;
  }

  private refuse(expected: string): never {
    refuse(`${this.place} must be ${expected}, got ${cut(shown(this.value))}`);
  }
}

/** The value of a valid document, in which numbers with a point or an exponent are of `Real`. */
function readReals(text: string): unknown {
  const marked = text.replace(
    /"(?:[^"\\]|\\.)*"|-?\d+(\.\d+)?([eE][+-]?\d+)?/g,
    (token, fraction?: string, exponent?: string) =>
      token[0] !== '"' && (fraction ?? exponent) !== undefined ? `{"\\u0000real":${token}}` : token,
  );
  return JSON.parse(marked, (name, value: unknown) => {
    if (typeof value === "string" && !value.isWellFormed()) throw new SyntaxError("a lone surrogate");
    if (!name.isWellFormed()) throw new SyntaxError("a lone surrogate");
    const isReal = typeof value === "object" && value !== null && Object.hasOwn(value, "\0real");
    return isReal ? new Real((value as { "\0real": number })["\0real"]) : value;
  });
}

function shown(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) => (inner instanceof Real ? inner.value : inner));
}

function cut(text: string): string {
  return text.length > 60 ? `${text.slice(0, 60)}...` : text;
}
