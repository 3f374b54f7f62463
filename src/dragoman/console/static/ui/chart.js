// A small line chart over time, drawn as SVG, with the values as a table for those who do not see it.
import { html, useId, useState } from "../lib/preact.js";
import { time } from "../lib/format.js";

const WIDTH = 600;
const HEIGHT = 120;
const LEFT = 4;
const TOP = 8;

/**
 * `points` are {at, …}; `lines` are {key, label, class}; `format` writes a value. A value that is null is a gap.
 */
export function Chart({ title, points, lines, format }) {
  const id = useId();
  const [hover, setHover] = useState(null);
  const top = Math.max(0, ...points.flatMap((point) => lines.map((line) => point[line.key] ?? 0))) || 1;
  const x = (index) => LEFT + (index * (WIDTH - 2 * LEFT)) / Math.max(1, points.length - 1);
  const y = (value) => TOP + (HEIGHT - 2 * TOP) * (1 - value / top);
  const shown = points[hover ?? points.length - 1];
  function onMove(event) {
    const box = event.currentTarget.getBoundingClientRect();
    const index = Math.round(((event.clientX - box.left) / box.width) * (points.length - 1));
    setHover(Math.max(0, Math.min(points.length - 1, index)));
  }
  return html`<figure class="chart card">
    <figcaption id=${id}><b>${title}</b>
      ${shown && lines.map((line) => html`<span key=${line.key} class="legend ${line.class}"> ${line.label} <b>${isNumber(shown[line.key]) ? format(shown[line.key]) : "–"}</b></span>`)}
      ${shown && html`<span class="muted"> ${time(shown.at)}</span>`}
    </figcaption>
    <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-labelledby=${id} onPointerMove=${onMove} onPointerLeave=${() => setHover(null)}>
      <line class="axis" x1="0" x2=${WIDTH} y1=${HEIGHT - TOP} y2=${HEIGHT - TOP} />
      ${lines.map((line) => html`<path key=${line.key} class="line ${line.class}" d=${path(points, line.key, x, y)} />`)}
      ${hover !== null && html`<line class="axis" x1=${x(hover)} x2=${x(hover)} y1="0" y2=${HEIGHT} />`}
    </svg>
    <p class="scale muted" aria-hidden="true"><span>${points.length ? time(points[0].at) : ""}</span><span>top ${format(top)}</span></p>
  </figure>`;
}

const isNumber = (value) => typeof value === "number";

/** A line begins anew behind each gap. */
function path(points, key, x, y) {
  return points.map((point, index) => isNumber(point[key])
    && `${isNumber(points[index - 1]?.[key]) ? "L" : "M"}${x(index).toFixed(1)} ${y(point[key]).toFixed(1)}`).filter(Boolean).join("");
}
