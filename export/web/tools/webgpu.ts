// node webgpu.js FOLDER CHROMIUM PROFILE: verifies a bundle in Chromium with onnxruntime-web on WebGPU, as verify.js does
// with wasm. The output and exit codes are the same, and 3 = the browser has no WebGPU or ended, with a sentence on stderr.
// PROFILE is an empty folder for the browser's files.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { dirname, extname, join } from "node:path";
import { text } from "node:stream/consumers";

import { filesOf } from "./folder.js";
import type { Result } from "./webgpu_page.js";

const LIBRARY = ["ort.webgpu.bundle.min.mjs", "ort-wasm-simd-threaded.asyncify.wasm"];
const PAGE = `<!doctype html>
<script type="importmap">{ "imports": { "onnxruntime-web": "/${LIBRARY[0]}" } }</script>
<script type="module" src="/webgpu_page.js"></script>`;
const TYPES: Partial<Record<string, string>> = { ".wasm": "application/wasm", ".html": "text/html" };
/** Chromium computes WebGPU in software, alike on every machine, and ends when the pipe closes. */
const OPTIONS = [
  "--headless=new",
  "--no-sandbox",
  "--disable-dev-shm-usage",
  "--remote-debugging-pipe",
  "--enable-unsafe-webgpu",
  "--use-webgpu-adapter=swiftshader",
];

const [folder, chromium, profile] = process.argv.slice(2);
const files = filesOf(folder);
const library = dirname(createRequire(import.meta.url).resolve("onnxruntime-web"));
const served = new Map<string, string | Uint8Array>([
  ["/index.html", PAGE],
  ["/webgpu_page.js", readFileSync(join(import.meta.dirname, "webgpu_page.js"))],
  ...LIBRARY.map((name) => [`/${name}`, readFileSync(join(library, name))] as const),
  ["/names", JSON.stringify([...files.keys()])],
  ...[...files].map(([name, content]) => [`/files/${encodeURIComponent(name)}`, content] as const),
]);

const server = createServer();
const posted = new Promise<Result>((resolve) => {
  server.on("request", (request, response) => {
    const content = served.get(request.url!);
    const type = TYPES[extname(request.url!)] ?? "text/javascript";
    response.writeHead(content === undefined ? 404 : 200, { "Content-Type": type }).end(content);
    if (request.method === "POST") void text(request).then((body) => resolve(JSON.parse(body) as Result));
  });
});
await once(server.listen(0, "127.0.0.1"), "listening");
const page = `http://127.0.0.1:${(server.address() as AddressInfo).port}/index.html`;
const browser = spawn(chromium, [...OPTIONS, `--user-data-dir=${profile}`, page], {
  stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
});
const ended = once(browser, "exit");
const early = ended.then((): Result => ({ code: 3, said: "Chromium ended before the proof did" }));
const { code, said } = await Promise.race([posted, early]);
(code < 2 ? console.log : console.error)(said);
process.exitCode = code;
browser.stdio[3]!.destroy();
browser.stdio[4]!.destroy();
await ended;
server.close();
server.closeAllConnections();
