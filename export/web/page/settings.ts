// The fields of the options of generation, and their values as the runtime takes them.

import type { GenerateOptions } from "../src/index.js";
import { el, field } from "./dom.js";

export interface Settings {
  fields: HTMLElement;
  /** Reads the fields. Throws an error that names the field if a value is not accepted. */
  read(): GenerateOptions;
}

interface Number {
  label: string;
  value: string;
  min: number;
  max: number;
  whole: boolean;
}

const FIELDS: Record<"tokens" | "temperature" | "topK" | "topP" | "seed", Number> = {
  tokens: { label: "Tokens to write", value: "200", min: 1, max: 100_000, whole: true },
  temperature: { label: "Temperature (0 = likeliest)", value: "0.8", min: 0, max: 100, whole: false },
  topK: { label: "Top-k (empty = all)", value: "", min: 1, max: 1_000_000, whole: true },
  topP: { label: "Top-p", value: "1", min: 0, max: 1, whole: false },
  seed: { label: "Seed", value: "1", min: 0, max: Number.MAX_SAFE_INTEGER, whole: true },
};

export function settings(tokens = "200"): Settings {
  const inputs = Object.entries(FIELDS).map(([name, { label, value, min, max, whole }]) => {
    const input = el("input", { type: "number", name, min, max, step: whole ? 1 : "any" });
    input.value = name === "tokens" ? tokens : value;
    return [name, field(label, input), input] as const;
  });
  const given = Object.fromEntries(inputs.map(([name, , input]) => [name, input]));
  const number = (name: keyof typeof FIELDS) => numberOf(given[name], FIELDS[name]);
  return {
    fields: el("div", { class: "fields" }, ...inputs.map(([, label]) => label)),
    read() {
      const topK = given["topK"].value.trim() === "" && given["topK"].validity.valid ? {} : { topK: number("topK") };
      const sampling = {
        temperature: number("temperature"),
        ...topK,
        topP: number("topP"),
        seed: BigInt(number("seed")),
      };
      return { maxNewTokens: number("tokens"), sampling };
    },
  };
}

export function numberOf(input: HTMLInputElement, { label, min, max, whole }: Omit<Number, "value">): number {
  const value = input.valueAsNumber;
  if (Number.isFinite(value) && value >= min && value <= max && (!whole || Number.isInteger(value))) return value;
  throw new Error(`${label}: give a ${whole ? "whole " : ""}number from ${min} to ${max}`);
}
