// Builders of elements and of form fields.

type Child = Node | string;
type Properties = Record<string, string | number | boolean | ((event: never) => void)>;

/**
 * Makes an element with attributes (true = present, false = absent), listeners (`onclick`) and children. Text is never
 * parsed as HTML.
 */
export function el<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  properties: Properties = {},
  ...children: Child[]
): HTMLElementTagNameMap[Name] {
  return filled(document.createElement(name), properties, children);
}

/** Makes an element of SVG. */
export function svg(name: string, properties: Properties = {}, ...children: Child[]): SVGElement {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), properties, children);
}

function filled<Kind extends Element>(element: Kind, properties: Properties, children: Child[]): Kind {
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value as EventListener);
    else if (value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children);
  return element;
}

export function section(title: string, ...children: Child[]): HTMLElement {
  return el("section", {}, el("h2", {}, title), ...children);
}

/** Lays out elements side by side, as far as there is room. */
export function figures(...all: HTMLElement[]): HTMLElement {
  return el("div", { class: "figures" }, ...all);
}

export function button(label: string, onclick: () => void, properties: Properties = {}): HTMLButtonElement {
  return el("button", { type: "button", onclick, ...properties }, label);
}

/** A control below its label. */
export function field(label: string, control: HTMLElement): HTMLLabelElement {
  return el("label", {}, el("span", {}, label), control);
}

export function area(label: string, text: string, rows = 4): { label: HTMLElement; input: HTMLTextAreaElement } {
  const input = el("textarea", { rows, spellcheck: "false", autocomplete: "off" });
  input.value = text;
  return { label: field(label, input), input };
}

/** Chosen names by the labels of their choices. */
export type Chosen = Map<string, string>;

/** A drop-down list. It begins with the name last `chosen`, or else with the first. */
export function choice(
  label: string,
  names: readonly string[],
  onchange: (place: number) => void,
  chosen: Chosen = new Map(),
): { label: HTMLElement; input: HTMLSelectElement } {
  const input = el("select", {
    onchange: () => (chosen.set(label, names[input.selectedIndex]), onchange(input.selectedIndex)),
  });
  input.append(...names.map((name) => el("option", {}, name)));
  input.selectedIndex = Math.max(0, names.indexOf(chosen.get(label) ?? ""));
  return { label: field(label, input), input };
}

/** A view's line for progress and errors. */
export function notice(): HTMLElement & { say(text: string): void; fail(error: unknown): void } {
  const line = el("p", { class: "notice", role: "status" });
  const say = (text: string, wrong = false) => {
    line.textContent = text;
    line.classList.toggle("wrong", wrong);
  };
  return Object.assign(line, {
    say: (text: string) => say(text),
    fail: (error: unknown) => say(`Not done: ${error instanceof Error ? error.message : String(error)}`, true),
  });
}

/** A function that runs work. Only its latest call counts: earlier work is not `wanted`, and its errors are dropped. */
export function latest(
  line: ReturnType<typeof notice>,
): (work: (wanted: () => boolean) => Promise<void>) => Promise<void> {
  let last = 0;
  return async (work) => {
    const number = ++last;
    const wanted = () => number === last;
    try {
      await work(wanted);
    } catch (error) {
      if (wanted()) line.fail(error);
    }
  };
}

/** A function that calls `action` once its own calls have ceased for a moment. */
export function settled(action: () => void, milliseconds = 200): () => void {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = window.setTimeout(action, milliseconds);
  };
}
