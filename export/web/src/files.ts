// The files of a bundle, and the check that they are as they were written.

import { refuse, SeqlabError } from "./error.js";
import { MANIFEST_NAME, parseManifest, SEAL_NAME, type Manifest } from "./manifest.js";
import { checkManifest } from "./manifest_checks.js";

/** Contents of a bundle's files by path, such as "tokenizer/tokenizer.json". */
export type Files = ReadonlyMap<string, Uint8Array>;

export async function sha256(bytes: Uint8Array): Promise<string> {
  // A browser offers it only to pages that came by https, from this machine or from a file.
  if (globalThis.crypto?.subtle === undefined) {
    refuse("this page cannot check a bundle, as it was not loaded over https", "unsupported");
  }
  const digest = await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>);
  return hex(new Uint8Array(digest));
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Reads and checks manifest.json, but not the files that it names. */
export function loadManifest(files: Files): Manifest {
  const content = files.get(MANIFEST_NAME);
  if (content === undefined) refuse(`this is not a bundle: it has no ${MANIFEST_NAME}`, "not found");
  try {
    const manifest = parseManifest(content);
    checkManifest(manifest);
    return manifest;
  } catch (error) {
    if (error instanceof SeqlabError) refuse(`${MANIFEST_NAME}: ${error.message}`, "damaged bundle");
    throw error;
  }
}

/** Defects by file name: a file is missing, is not listed, or differs from its digest in the manifest or the seal. */
export async function findDamage(files: Files, manifest: Manifest): Promise<Map<string, string>> {
  const seal = files.get(SEAL_NAME);
  const content = files.get(MANIFEST_NAME);
  if (seal === undefined || content === undefined) return new Map([[SEAL_NAME, "it is missing"]]);
  if (new TextDecoder().decode(seal).split(/\s/)[0] !== (await sha256(content))) {
    return new Map([[MANIFEST_NAME, `its sha256 is not the one in ${SEAL_NAME}`]]);
  }
  const damage = new Map<string, string>();
  for (const [name, digest] of Object.entries(manifest.files)) {
    const file = files.get(name);
    if (file === undefined) damage.set(name, "it is missing");
    else if ((await sha256(file)) !== digest) damage.set(name, "its sha256 is not the manifest's");
  }
  for (const name of files.keys()) {
    const listed = Object.hasOwn(manifest.files, name) || name === MANIFEST_NAME || name === SEAL_NAME;
    if (!listed) damage.set(name, "the manifest does not list it");
  }
  return damage;
}

/** The manifest, after a check of every file against it. */
export async function checkedManifest(files: Files): Promise<Manifest> {
  const manifest = loadManifest(files);
  for (const [name, what] of await findDamage(files, manifest)) {
    refuse(`this bundle is not as it was written: ${name}: ${what}`, "damaged bundle");
  }
  return manifest;
}
