// The check of an ONNX file before onnxruntime loads it, the same as seqlab_export.runner.graph_file's.

import operators from "../../seqlab_export/runner/operators.json";

import { refuse } from "./error.js";

/** The deepest nesting of graphs. */
const DEEPEST = 8;
/** Field numbers of onnx.proto. */
const MODEL = { graph: 7, functions: 25 };
const GRAPH = { node: 1 };
const NODE = { operator: 4, attribute: 5, domain: 7 };
const ATTRIBUTE = { graph: 6, graphs: 11 };

/**
 * Refuses a graph that may never terminate: one with operators outside the target's list, with functions of its own, or
 * with a graph inside a node other than Scan, whose number of runs is the length of its input.
 */
export function checkGraph(name: string, content: Uint8Array, target: keyof typeof operators): void {
  const accepted = new Set([...operators["every target"], ...operators[target]]);
  const wrong = (what: string): never => refuse(`${name} is no graph of a bundle: it ${what}`, "damaged bundle");

  const readGraph = (graph: Uint8Array, depth: number): void => {
    if (depth > DEEPEST) wrong(`is nested deeper than ${DEEPEST} graphs`);
    for (const [number, node] of fieldsOf(graph)) if (number === GRAPH.node) readNode(node, depth);
  };

  const readNode = (node: Uint8Array, depth: number): void => {
    let operator = "";
    let domain = "";
    const graphs: Uint8Array[] = [];
    for (const [number, value] of fieldsOf(node)) {
      if (number === NODE.operator) operator = new TextDecoder().decode(value);
      if (number === NODE.domain) domain = new TextDecoder().decode(value);
      if (number !== NODE.attribute) continue;
      for (const [part, inner] of fieldsOf(value)) {
        if (part === ATTRIBUTE.graph || part === ATTRIBUTE.graphs) graphs.push(inner);
      }
    }
    const full = domain === "" || domain === "ai.onnx" ? operator : `${domain}::${operator}`;
    if (!accepted.has(full)) wrong(`has the operator ${full}, which no graph of target ${target} has`);
    if (graphs.length > 0 && full !== "Scan") wrong(`has a ${full} with a graph of its own, which only Scan has`);
    for (const graph of graphs) readGraph(graph, depth + 1);
  };

  /** The length-delimited fields of a message: strings, messages and packed lists. */
  function* fieldsOf(message: Uint8Array): Generator<[number, Uint8Array]> {
    const reader = new Reader(message, () => wrong("is not what protobuf writes"));
    while (!reader.atEnd) {
      const tag = Number(reader.number() & 0xffffffffn);
      const kind = tag & 7;
      if (kind === 0) reader.number();
      else if (kind === 1 || kind === 5) reader.bytes(kind === 1 ? 8n : 4n);
      else if (kind === 2) yield [tag >>> 3, reader.bytes(reader.number())];
      else wrong("is not what protobuf writes");
    }
  }

  for (const [number, value] of fieldsOf(content)) {
    if (number === MODEL.functions) wrong("has functions of its own, which no graph of a bundle has");
    if (number === MODEL.graph) readGraph(value, 1);
  }
}

class Reader {
  private place = 0;

  constructor(
    private readonly message: Uint8Array,
    private readonly malformed: () => never,
  ) {}

  get atEnd(): boolean {
    return this.place >= this.message.length;
  }

  /** A varint: 7 bits a byte. */
  number(): bigint {
    let found = 0n;
    for (let shift = 0n; shift < 70n && !this.atEnd; shift += 7n) {
      const byte = this.message[this.place++];
      found |= BigInt(byte & 127) << shift;
      if (byte < 128) return found;
    }
    return this.malformed();
  }

  bytes(size: bigint): Uint8Array {
    if (size > BigInt(this.message.length - this.place)) this.malformed();
    this.place += Number(size);
    return this.message.subarray(this.place - Number(size), this.place);
  }
}
