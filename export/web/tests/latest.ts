// Three works of a view, of which the newest ends first: what is told of each, as JSON on stdout.

import { latest } from "../page/dom.js";

const told: string[] = [];
const run = latest({ fail: (error: Error) => told.push(`failed: ${error.message}`) } as never);
const ends: (() => void)[] = [];
const all = ["first", "second", "third"].map((name) =>
  run(async (wanted) => {
    await new Promise<void>((end) => ends.push(end));
    if (name !== "second") throw new Error(name);
    told.push(wanted() ? "wanted" : "not wanted");
  }),
);
ends.reverse().forEach((end) => end());
await Promise.all(all);
console.log(JSON.stringify(told));
