// The input of a model of features: a small canvas to draw an image on, or lines of numbers.

import type { Batch } from "../src/index.js";
import { area, button, el, settled } from "./dom.js";
import type { Images } from "./embedded.js";
import type { Opened } from "./opened.js";

/** The longer side of the canvas, in pixels. */
const SIDE = 224;

export interface Drawing {
  element: HTMLElement;
  /** Reads the input. Throws if the numbers do not fit the model. */
  read(): Batch;
}

/** Makes the input that fits the bundle. `onChange` is called shortly after each change. */
export function drawing(opened: Opened, onChange: () => void): Drawing {
  const { images } = opened.about;
  const features = Number(opened.manifest.encoder!.inputs[0].dims[2]);
  return images ? drawn(images, features, onChange) : typed(features, onChange);
}

function drawn(images: Images, features: number, onChange: () => void): Drawing {
  const { height, width } = images;
  const pixels = new Float32Array(height * width);
  const size = Math.max(4, Math.floor(SIDE / Math.max(height, width)));
  const canvas = el("canvas", {
    class: "pad",
    width: size * width,
    height: size * height,
    "aria-label": "Draw here",
    role: "img",
  });
  const pen = canvas.getContext("2d")!;
  const changed = settled(onChange, 60);
  let last: [number, number] | null = null;

  function show(): void {
    pixels.forEach((ink, place) => {
      const grey = Math.round(255 * ink);
      pen.fillStyle = `rgb(${grey},${grey},${grey})`;
      pen.fillRect((place % width) * size, Math.floor(place / width) * size, size, size);
    });
  }

  /** Adds ink, which fades with the distance from the stroke, as in a scan. */
  function ink(x: number, y: number): void {
    for (let row = 0; row < height; row++) {
      for (let column = 0; column < width; column++) {
        const far = Math.hypot(column + 0.5 - x, row + 0.5 - y) / (Math.max(height, width) / 8);
        const place = row * width + column;
        pixels[place] = Math.max(pixels[place], Math.min(1, Math.max(0, 1.35 - far)));
      }
    }
  }

  function stroke(event: PointerEvent): void {
    const box = canvas.getBoundingClientRect();
    const to: [number, number] = [
      ((event.clientX - box.left) / box.width) * width,
      ((event.clientY - box.top) / box.height) * height,
    ];
    const from = last ?? to;
    const steps = Math.ceil(4 * Math.hypot(to[0] - from[0], to[1] - from[1])) + 1;
    for (let step = 1; step <= steps; step++) {
      ink(from[0] + ((to[0] - from[0]) * step) / steps, from[1] + ((to[1] - from[1]) * step) / steps);
    }
    last = to;
    show();
    changed();
  }

  canvas.addEventListener(
    "pointerdown",
    (event) => (canvas.setPointerCapture(event.pointerId), (last = null), stroke(event)),
  );
  canvas.addEventListener("pointermove", (event) => event.buttons && stroke(event));
  const clear = button("Clear", () => (pixels.fill(0), show(), changed()), { id: "clear" });
  show();
  const hint = el(
    "p",
    { class: "note" },
    `Draw with the pointer: ${height} x ${width} pixels, read in patches of ${images.patch} x ${images.patch}.`,
  );
  const element = el("div", { class: "drawing" }, canvas, el("p", { class: "buttons" }, clear), hint);
  return {
    element,
    read: () => ({
      rows: 1,
      length: (height * width) / images.patch ** 2,
      features: patches(pixels, images, features),
    }),
  };
}

/** Turns pixels (H, W), from 0 to 1, into the features (T, F) of an image: scaled patches, row by row. */
export function patches(pixels: Float32Array, images: Images, features: number): Float32Array {
  const { height, width, patch, scale, largest } = images;
  const found: number[] = [];
  for (let top = 0; top < height; top += patch) {
    for (let left = 0; left < width; left += patch) {
      for (let within = 0; within < patch * patch; within++) {
        const pixel = largest * pixels[(top + Math.floor(within / patch)) * width + left + (within % patch)];
        for (const [mean, std] of scale) found.push((pixel - mean) / std);
      }
    }
  }
  if (found.length !== (features * height * width) / patch ** 2) {
    throw new Error(`the model reads ${features} numbers per patch`);
  }
  return Float32Array.from(found);
}

function typed(features: number, onChange: () => void): Drawing {
  const zeros = Array.from({ length: 4 }, () => Array.from({ length: features }, () => "0").join(" ")).join("\n");
  const { label, input } = area(`Features: ${features} numbers a line, a line a position`, zeros, 6);
  input.addEventListener("input", settled(onChange));
  return {
    element: label,
    read() {
      const lines = input.value.split("\n").filter((line) => line.trim());
      const numbers = lines.flatMap((line, number) => {
        const row = line
          .trim()
          .split(/[\s,]+/)
          .map(Number);
        if (row.length === features && row.every(Number.isFinite)) return row;
        throw new Error(`line ${number + 1} must have ${features} numbers`);
      });
      if (!lines.length) throw new Error("give at least one line of numbers");
      return { rows: 1, length: lines.length, features: Float32Array.from(numbers) };
    },
  };
}
