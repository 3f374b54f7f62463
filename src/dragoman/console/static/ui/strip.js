// A strip that shows where the events of a task are in time: how many, in which state, and the gaps between them.
import { html, useEffect, useMemo, useRef, useState } from "../lib/preact.js";
import { count, stateKind, stateLabel } from "../lib/format.js";
import { theme } from "../lib/preferences.js";
import { between } from "../lib/journal.js";

const HEIGHT = 48; // as in the style sheet
const BIN = 3; // pixels per bar

/** Time from 0 to 1, with gaps shortened: one of an hour is longer than one of a minute, but leaves room for the rest. */
function positions({ events, gapLimit: limit }) {
  const waits = events.map((event, index) => between(events[index - 1], event));
  const short = waits.reduce((sum, waited) => sum + (waited < limit ? waited : 0), 0);
  const unit = Math.max(short, events.length, 1) / 24;
  let total = 0;
  const at = waits.map((waited) => (total += waited < limit ? waited : unit * (1 + Math.log2(waited / limit) / 2)));
  return {
    at: at.map((each) => each / (total || 1)),
    gaps: waits.flatMap((waited, index) => (waited >= limit ? [index] : [])),
    states: [...new Set(events.map((event) => event.current))].filter(Boolean),
  };
}

/** The events of a `journal`; `at` is the marked generation; `onSelect(generation)` is called for a click. */
export function Strip({ journal, at, onSelect }) {
  const { version } = journal;
  const canvas = useRef(null);
  const [width, setWidth] = useState(0);
  // The journal may have grown since this was laid out.
  const events = useMemo(() => journal.events.slice(), [version]);
  const { at: places, gaps, states } = useMemo(() => positions(journal), [version]);
  const x = (index) => places[index] * (width - 3);

  useEffect(() => {
    const resizes = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    resizes.observe(canvas.current.parentElement);
    return () => resizes.disconnect();
  }, []);
  useEffect(() => {
    if (width > 0 && events.length) draw(canvas.current, width, events, gaps, x, at);
  }, [width, version, at, theme.value]);

  function onClick({ offsetX }) {
    const right = events.findIndex((_, index) => x(index) >= offsetX);
    const index = right < 0 ? events.length - 1 : right > 0 && offsetX - x(right - 1) < x(right) - offsetX ? right - 1 : right;
    onSelect(events[index].generation);
  }
  const label = `${count(events.length)} events over time, ${gaps.length} ${gaps.length === 1 ? "gap" : "gaps"}`;
  return html`<figure class="strip">
    <div class="frame"><canvas ref=${canvas} role="img" aria-label=${label} onClick=${onClick}></canvas></div>
    <figcaption>
      ${states.map((state) => html`<span key=${state} class="key ${stateKind(state)}">${stateLabel(state)}</span>`)}
      ${gaps.length > 0 && html`<span class="key gap">gap, shortened</span>`}</figcaption>
  </figure>`;
}

function draw(canvas, width, events, gaps, x, at) {
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(HEIGHT * scale);
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const style = getComputedStyle(canvas);
  // A canvas does not know the variables of the style sheet, nor `light-dark()`, which they hold: an element does.
  const color = (name) => {
    canvas.style.color = `var(--${name})`;
    return style.color;
  };
  const colorOf = (event) => color(stateKind(event.current).replace("quiet", "muted"));
  for (const index of gaps) {
    context.fillStyle = colorOf(events[index - 1]);
    context.globalAlpha = 0.2;
    context.fillRect(x(index - 1), 0, x(index) - x(index - 1), HEIGHT);
    context.globalAlpha = 1;
  }
  const bins = new Map(); // from a position to the events there
  events.forEach((event, index) => {
    const place = Math.floor(x(index) / BIN) * BIN;
    const bin = bins.get(place) ?? { size: 0 };
    bins.set(place, { size: bin.size + 1, event: event.state || !bin.event ? event : bin.event });
  });
  const most = Math.max(...[...bins.values()].map((bin) => bin.size));
  for (const [place, { size, event }] of bins) {
    // Logarithmic: one event is still seen beside a thousand.
    const height = 6 + (HEIGHT - 10) * (Math.log1p(size) / Math.log1p(most));
    context.fillStyle = colorOf(event);
    context.fillRect(place, HEIGHT - height, BIN - 1, height);
  }
  const marked = at === null ? -1 : events.findLastIndex((event) => event.generation <= at);
  if (marked < 0) return;
  context.fillStyle = color("text");
  context.fillRect(x(marked) - 1, 0, 2, HEIGHT);
  context.fillRect(x(marked) - 4, 0, 8, 5);
}
