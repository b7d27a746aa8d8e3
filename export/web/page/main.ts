// The page: it opens its bundles and shows one of them in several views.

import { classifyView } from "./classify.js";
import { compareView } from "./compare.js";
import { choice, el } from "./dom.js";
import { drawView } from "./draw.js";
import { page } from "./embedded.js";
import { lookInsideView } from "./look_inside.js";
import { nextTokenView } from "./next_token.js";
import { onnxruntime } from "./onnxruntime.js";
import { openBundle, type Kind, type Opened } from "./opened.js";
import { tabs, type Tab } from "./tabs.js";
import { translateView } from "./translate.js";
import { whatItIsView } from "./what_it_is.js";
import { writeView } from "./write.js";

const status = document.getElementById("status")!;
const main = document.getElementById("main")!;

function say(text: string): Promise<void> {
  status.lastElementChild!.textContent = text;
  return new Promise((resolve) => setTimeout(resolve, 20));
}

function tryIt(opened: Opened, text: string): HTMLElement {
  const views: Record<Kind, () => HTMLElement> = {
    writer: () => writeView(opened, text),
    speller: () => writeView(opened, text),
    translator: () => translateView(opened, text),
    classifier: () => classifyView(opened, text),
    tagger: () => classifyView(opened, text),
    masked: () => nextTokenView(opened, text),
    features: () => drawView(opened),
  };
  return views[opened.kind]();
}

function viewsOf(opened: Opened, all: readonly Opened[], text: () => string): Tab[] {
  const views = [{ name: "Try it", make: () => tryIt(opened, text()) }];
  if (opened.manifest.model) views.push({ name: "Next token", make: () => nextTokenView(opened, text()) });
  views.push({ name: "Look inside", make: () => lookInsideView(opened, text()) });
  views.push({ name: "What it is", make: () => whatItIsView(opened) });
  if (all.length > 1) views.push({ name: "Compare", make: () => compareView(all, text()) });
  return views;
}

async function start(): Promise<void> {
  const { bundles, tab, text: first } = page();
  let text = first;
  const names = bundles.map(({ name }) => name).join(", ");
  document.title = names;
  document.getElementById("title")!.textContent = names;
  await say("Starting onnxruntime …");
  const ort = await onnxruntime();
  const all: Opened[] = [];
  for (const [place, about] of bundles.entries()) {
    await say(`Opening ${about.name} …`);
    all.push(await openBundle(about, place, ort));
  }
  let shown = tab;
  const show = (place: number) => {
    const views = viewsOf(all[place], all, () => text);
    const number = Math.max(
      0,
      views.findIndex(({ name }) => name === shown),
    );
    main.replaceChildren(tabs(views, number, (now) => (shown = views[now].name)));
  };
  if (all.length > 1) {
    const chosen = choice(
      "Model",
      bundles.map(({ name }) => name),
      show,
    );
    document.getElementById("picker")!.append(el("div", { class: "fields" }, chosen.label));
  }
  // A view begins, when first shown, with the text that was typed last.
  main.addEventListener("input", ({ target }) => {
    if (target instanceof HTMLTextAreaElement && target === main.querySelector("textarea")) text = target.value;
  });
  show(0);
  document.body.dataset["ready"] = String(Math.round(performance.now()));
}

start().catch((error: unknown) => {
  status.className = "wrong";
  status.textContent = `This page cannot run its model: ${error instanceof Error ? error.message : String(error)}`;
});
