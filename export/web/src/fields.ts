// JSON that is read strictly: what a field must be is said where it is read, and what it is not is one sentence.

import { refuse, sentenceOf } from "./error.js";

/** A dimension or length over 2^40 is nothing that a machine could hold. */
const MOST = 2 ** 40;

/** A number that was written with a point or an exponent: 1.0 is not 1. */
class Real {
  constructor(readonly value: number) {}
}

/** A value of a document, which knows where it stands. */
export class Field {
  private constructor(
    private readonly value: unknown,
    readonly place: string,
  ) {}

  /** Reads a document of UTF-8. */
  static of(bytes: Uint8Array, place: string): Field {
    try {
      const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
      JSON.parse(text);
      return new Field(readReals(text), place);
    } catch (error) {
      refuse(`${place} is not JSON: ${sentenceOf(error)}`); // Not UTF-8, or nested too deeply, perhaps.
    }
  }

  /** Whether both are the same JSON, 1 and 1.0 being two. */
  equals(other: Field): boolean {
    return JSON.stringify(this.value) === JSON.stringify(other.value);
  }

  get isNull(): boolean {
    return this.value === null;
  }

  get isString(): boolean {
    return typeof this.value === "string";
  }

  /** Whether it is this very string or number. */
  is(value: string | number): boolean {
    return this.value === value;
  }

  /** The members of an object, in their order. */
  members(): [string, Field][] {
    return Object.entries(this.object()).map(([name, value]) => [name, new Field(value, `${this.place}.${name}`)]);
  }

  /** A function that gives the members by name, of an object that has these and no others. */
  exactly(...names: string[]): (name: string) => Field {
    const object = this.object();
    const missing = names.filter((name) => !Object.hasOwn(object, name));
    if (missing.length > 0) refuse(`${this.place} lacks ${missing.join(", ")}`);
    const unknown = Object.keys(object).filter((name) => !names.includes(name));
    if (unknown.length > 0) refuse(`${this.place} has ${cut(unknown.join(", "))}, which nothing here knows`);
    return (name) => new Field(object[name], `${this.place}.${name}`);
  }

  get(name: string): Field {
    const object = this.object();
    if (!Object.hasOwn(object, name)) refuse(`${this.place} lacks ${name}`);
    return new Field(object[name], `${this.place}.${name}`);
  }

  items(): Field[] {
    if (!Array.isArray(this.value)) this.refuse("a list");
    return this.value.map((item, place) => new Field(item, `${this.place}[${place}]`));
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
    if (typeof this.value !== "number" || this.value < least || this.value > MOST) {
      this.refuse(`a whole number from ${least} to 2^40`);
    }
    return this.value;
  }

  real(): number {
    const number = this.value instanceof Real ? this.value.value : this.value;
    if (typeof number !== "number" || !Number.isFinite(number)) this.refuse("a finite number");
    return number;
  }

  /** What `read` makes of it, or null. */
  orNull<Kind>(read: (field: Field) => Kind): Kind | null {
    return this.value === null ? null : read(this);
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
