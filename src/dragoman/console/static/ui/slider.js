// The slider of a task: it shows the task as it was after any of its events.
import { html, useState } from "../lib/preact.js";
import { count, stateLabel, time } from "../lib/format.js";
import { useInterval } from "./base.js";

const TICK = 300; // ms between two steps while it plays
const STEPS = 120; // a long task is played in so many steps

/** `at` is a generation, null for the newest; `onChange(generation or null)`. `event` is the Journal's event there. */
export function Slider({ oldest, newest, at, event, onChange }) {
  const [isPlaying, setPlaying] = useState(false);
  const value = at ?? newest;
  const go = (next, plays = false) => {
    setPlaying(plays);
    onChange(next === null ? null : Math.max(oldest, Math.min(newest, next)));
  };
  useInterval(() => {
    if (!isPlaying) return;
    if (value >= newest) setPlaying(false);
    else go(value + Math.max(1, Math.round((newest - oldest) / STEPS)), true);
  }, TICK);
  const play = () => (isPlaying ? setPlaying(false) : go(value >= newest ? oldest : value, true));
  const state = event?.current && stateLabel(event.current);
  const when = event?.at && time(new Date(event.at).toISOString());
  const words = [`event ${count(value)} of ${count(newest)}`, state, when].filter(Boolean).join(", ");
  const button = (label, sign, onClick, disabled) => html`<button type="button" class="icon" aria-label=${label}
    title=${label} disabled=${disabled} onClick=${onClick}>${sign}</button>`;
  const isFirst = value <= oldest;
  const isLast = value >= newest;
  return html`<div class="slider" role="group" aria-label="The task at any event">
    <div>
      ${button("First event", "«", () => go(oldest), isFirst)}
      ${button("Previous event", "‹", () => go(value - 1), isFirst)}
      ${button(isPlaying ? "Pause" : "Play", isPlaying ? "‖" : "▶", play, newest <= oldest)}
      ${button("Next event", "›", () => go(value + 1), isLast)}
      ${button("Last event", "»", () => go(newest), isLast)}
    </div>
    <input type="range" min=${oldest} max=${Math.max(newest, oldest)} step="1" value=${value}
      disabled=${newest <= oldest} aria-label="Event" aria-valuetext=${words}
      onInput=${({ currentTarget }) => go(Number(currentTarget.value))} />
    <span class="where" aria-hidden="true">${words}</span>
    <button type="button" class="small ${at === null ? "primary" : ""}" aria-pressed=${at === null}
      onClick=${() => go(null)}>Newest</button>
  </div>`;
}
