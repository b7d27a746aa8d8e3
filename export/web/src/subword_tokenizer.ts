// Byte-pair encoding (Sennrich et al. 2016) with the pieces of a sentencepiece model (Kudo and Richardson 2018).

import { PbfReader } from "pbf";
import TinyQueue from "tinyqueue";

import { refuse } from "./error.js";
import { Tokenizer } from "./tokenizer.js";

/** The space in sentencepiece's pieces. One in a text is spelt in bytes, lest decoding turn it into a space. */
const SPACE = "\u2581";
/** Characters that no piece contains. */
const SEPARATORS = new RegExp(`([\n${SPACE}])`);
/** Types of pieces, and below the type of model, in sentencepiece_model.proto. */
const [NORMAL, UNKNOWN, CONTROL, BYTE] = [1, 2, 3, 6];
const BYTE_PAIRS = 2;

interface Piece {
  text: string;
  /** the priority of a merge, the highest first */
  score: number;
  type: number;
}

/** The part of a model file that is read here. */
class Stored {
  readonly pieces: Piece[] = [];
  byPairs = false;
  changesText = [false, true, true];

  /** Throws if the bytes are not a model's. */
  constructor(model: Uint8Array) {
    new PbfReader(model).readFields((tag, _, reader) => {
      if (tag === 1) this.pieces.push(reader.readMessage(ofPiece, { text: "", score: 0, type: NORMAL }));
      if (tag === 2) {
        reader.readMessage((tag) => void (tag === 3 && (this.byPairs = reader.readVarint() === BYTE_PAIRS)), null);
      }
      if (tag === 3) reader.readMessage((tag) => this.readNormalizer(tag, reader), null);
    }, null);
  }

  /** Reads three settings that change a text: a character map, a space put before it, extra spaces removed. */
  private readNormalizer(tag: number, reader: PbfReader): void {
    if (tag === 2) this.changesText[0] = reader.readBytes().length > 0;
    if (tag === 3 || tag === 4) this.changesText[tag - 2] = reader.readBoolean();
  }
}

function ofPiece(tag: number, piece: Piece, reader: PbfReader): void {
  if (tag === 1) piece.text = reader.readString();
  if (tag === 2) piece.score = reader.readFloat();
  if (tag === 3) piece.type = reader.readVarint();
}

/** Two adjacent symbols that form a piece, by the places where they begin. */
interface Pair {
  left: number;
  right: number;
  text: string;
  score: number;
}

function soonest(one: Pair, other: Pair): number {
  return other.score - one.score || one.left - other.left;
}

/** Tokens are pieces, and 256 bytes for the characters without one. */
export class SubwordTokenizer extends Tokenizer {
  private readonly known = new Map<string, { id: number; score: number }>();
  private readonly byteIds: number[] = [];

  /** Takes the bytes of a `tokenizer.model`. */
  constructor(model: Uint8Array) {
    const { pieces, byPairs, changesText } = read(model);
    super(pieces.map(bytesOf));
    for (const [id, { text, score, type }] of pieces.entries()) {
      if (type === NORMAL) this.known.set(text, { id, score });
      if (type === BYTE) this.byteIds[Number(text.slice(1, -1))] = id;
    }
    const others = pieces.some(({ type }) => ![NORMAL, UNKNOWN, CONTROL, BYTE].includes(type));
    if (!byPairs || changesText.includes(true) || others || Object.keys(this.byteIds).length !== 256) {
      refuse(
        "this runtime reads only byte-pair subwords, with all bytes and without normalisation; give it ids",
        "unsupported",
      );
    }
  }

  protected override idsOf(text: string): number[] {
    return text.split(SEPARATORS).flatMap((part) => (SEPARATORS.test(part) ? this.spelt(part) : this.merged(part)));
  }

  private spelt(character: string): number[] {
    return Array.from(new TextEncoder().encode(character), (byte) => this.byteIds[byte]);
  }

  /** Merges characters pair by pair, the piece of the highest score first, ties from the left. */
  private merged(part: string): number[] {
    const symbols = Array.from(part.replaceAll(" ", SPACE));
    // The places where the neighbours of each symbol begin.
    const [before, after] = [symbols.map((_, place) => place - 1), symbols.map((_, place) => place + 1)];
    const pairs = new TinyQueue<Pair>([], soonest);
    const offer = (left: number, right: number) => {
      const text = symbols[left] + symbols[right];
      const piece = left >= 0 && right < symbols.length ? this.known.get(text) : undefined;
      if (piece) pairs.push({ left, right, text, score: piece.score });
    };
    symbols.forEach((_, place) => offer(place, place + 1));
    for (let pair = pairs.pop(); pair; pair = pairs.pop()) {
      const { left, right, text } = pair;
      if (after[left] !== right || symbols[left] + symbols[right] !== text) continue; // merged with another
      symbols[left] = text;
      symbols[right] = "";
      after[left] = after[right];
      if (after[right] < symbols.length) before[after[right]] = left;
      offer(before[left], left);
      offer(left, after[left]);
    }
    return symbols.filter(Boolean).flatMap((symbol) => this.known.get(symbol)?.id ?? this.spelt(symbol));
  }
}

function read(model: Uint8Array): Stored {
  try {
    return new Stored(model);
  } catch {
    refuse("its tokenizer.model is not a sentencepiece model", "damaged bundle");
  }
}

function bytesOf({ text, type }: Piece): Uint8Array {
  if (type === CONTROL) return new Uint8Array();
  if (type === BYTE) return Uint8Array.of(Number(text.slice(1, -1)));
  return new TextEncoder().encode(type === UNKNOWN ? "\ufffd" : text.replaceAll(SPACE, " "));
}
