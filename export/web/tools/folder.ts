// Reads the files of a bundle from a folder, in Node.

import { readdirSync, readFileSync, statSync } from "node:fs";
import { join, relative, sep } from "node:path";

/** Contents of a folder's files by their paths in it. */
export function filesOf(folder: string): Map<string, Uint8Array> {
  const paths = readdirSync(folder, { recursive: true, encoding: "utf8" }).map((name) => join(folder, name));
  const files = paths.filter((path) => statSync(path).isFile());
  return new Map(
    files.map((path) => [relative(folder, path).split(sep).join("/"), new Uint8Array(readFileSync(path))]),
  );
}
