// Runs three works of a view, of which the newest ends first, and prints what the view says of each, as JSON.

import { latest } from "../page/dom.js";

const said: string[] = [];
const run = latest({ fail: (error: Error) => said.push(`failed: ${error.message}`) } as never);
const ends: (() => void)[] = [];
const all = ["first", "second", "third"].map((name) =>
  run(async (wanted) => {
    await new Promise<void>((end) => ends.push(end));
    if (name !== "second") throw new Error(name);
    said.push(wanted() ? "wanted" : "not wanted");
  }),
);
ends.reverse().forEach((end) => end());
await Promise.all(all);
console.log(JSON.stringify(said));
