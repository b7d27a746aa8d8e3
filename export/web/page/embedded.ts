// Data that Python embedded in the page: descriptions of the bundles, and their files.

import type { Files } from "../src/index.js";
import type { Point } from "./lines.js";

export interface Curve {
  name: string;
  points: Point[];
}

/** Preprocessing of images: (pixel - mean) / std by channel, in patches, row by row. */
export interface Images {
  height: number;
  width: number;
  patch: number;
  scale: [number, number][];
  largest: number;
}

/** Facts about a bundle that are not in it; `seqlab_export.page` writes them. */
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

/** Takes a bundle's files, by path, out of the page. Their base64 is removed, as it takes more memory than they do. */
export function takeFiles(bundle: number): Files {
  const files = new Map<string, Uint8Array>();
  for (const element of document.querySelectorAll<HTMLElement>(`script[data-bundle="${bundle}"]`)) {
    files.set(element.dataset["path"]!, bytesOf(element));
    element.remove();
  }
  return files;
}

/** Decodes the base64 in an element. */
export function bytesOf(element: Element): Uint8Array<ArrayBuffer> {
  const text = atob(element.textContent.trim());
  const bytes = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place++) bytes[place] = text.charCodeAt(place);
  return bytes;
}
