// node build.mjs FILE: writes the page's template, which is one HTML file of everything but the bundles.

import { build } from "esbuild";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { gzipSync } from "node:zlib";

const here = import.meta.dirname;
const onnxruntime = dirname(createRequire(import.meta.url).resolve("onnxruntime-web"));

/** Bundles and minifies a file, safe to put into an HTML element. */
async function bundled(name) {
  const options = { bundle: true, minify: true, write: false, format: "esm", target: "es2022", legalComments: "none" };
  const { outputFiles } = await build({ ...options, entryPoints: [join(here, name)] });
  return inElement(outputFiles[0].text);
}

function inElement(code) {
  return code.replaceAll(/<(?=\/script|!--)/gi, "\\x3c").replaceAll(/\n\/\/# sourceMappingURL=.*/g, "");
}

const wasm = gzipSync(await readFile(join(onnxruntime, "ort-wasm-simd-threaded.wasm")), { level: 9 });
const parts = {
  "/* STYLE */": await bundled("style.css"),
  "/* ONNXRUNTIME */": inElement(await readFile(join(onnxruntime, "ort.wasm.bundle.min.mjs"), "utf8")),
  "<!-- WASM -->": wasm.toString("base64"),
  "/* SCRIPT */": await bundled("main.ts"),
};
let page = await readFile(join(here, "index.html"), "utf8");
for (const [place, part] of Object.entries(parts)) {
  page = page.replace(place, () => part);
}
await mkdir(dirname(process.argv[2]), { recursive: true });
await writeFile(process.argv[2], page);
console.log(`${process.argv[2]}: ${(Buffer.byteLength(page) / 2 ** 20).toFixed(1)} MiB`);
