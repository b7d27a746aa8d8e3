// What Python put into the page: what to show, and the bundles' files.

import type { Files } from "../src/index.js";
import type { Point } from "./lines.js";

export interface Curve {
  name: string;
  points: Point[];
}

/** How an image becomes what a model reads: (pixel - mean) / std by channel, in patches, row by row. */
export interface Images {
  height: number;
  width: number;
  patch: number;
  scale: [number, number][];
  largest: number;
}

/** What the page knows of a bundle beside the bundle itself; `seqlab_export.page` writes it. */
export interface About {
  name: string;
  parts: [string, number][];
  run: { name: string; experiment: string; data: string | null; curves: Curve[] } | null;
  images: Images | null;
}

export interface Page {
  bundles: About[];
  tab: string;
  text: string;
}

export function page(): Page {
  return JSON.parse(document.getElementById("page")!.textContent) as Page;
}

/** The files of a bundle, by their paths. Their text is dropped, for it takes more room than they do. */
export function takeFiles(bundle: number): Files {
  const files = new Map<string, Uint8Array>();
  for (const element of document.querySelectorAll<HTMLElement>(`script[data-bundle="${bundle}"]`)) {
    files.set(element.dataset["path"]!, bytesOf(element));
    element.remove();
  }
  return files;
}

/** The bytes that an element has as base64. */
export function bytesOf(element: Element): Uint8Array<ArrayBuffer> {
  const text = atob(element.textContent.trim());
  const bytes = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place++) bytes[place] = text.charCodeAt(place);
  return bytes;
}
