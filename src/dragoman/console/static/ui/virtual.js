// Long lists: only the visible rows are in the document.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/preact.js";

const OVERSCAN = 8;
const STEP = 4; // rows by which the window moves: fewer renders while scrolling
const HEADER_HEIGHT = 34; // as in the style sheet
const NARROW = matchMedia("(max-width: 760px)");

/** Whether the window is as narrow as a phone. */
export function useNarrow() {
  const [narrow, setNarrow] = useState(NARROW.matches);
  useEffect(() => {
    const changed = () => setNarrow(NARROW.matches);
    NARROW.addEventListener("change", changed);
    return () => NARROW.removeEventListener("change", changed);
  }, []);
  return narrow;
}

/**
 * A grid of rows of one height. The grid has the focus, `active` is the index of its current row (-1: none).
 *
 * `count` rows can be scrolled to; `total` is how many there are in all, null when nobody knows. `row(index, isActive)`
 * returns {cells, class, current} of a row, `header` the cells of the first one. It is scrolled to `initialTop` pixels
 * at first. With `isFitted`, it is not taller than its rows. `onActive(index)` is called when the keyboard moves,
 * `onOpen(index, event)` for Enter and clicks, `onKey(event, index)` for other keys, `onRange(first, last)` when it is
 * scrolled or grows. `control.current` gets {scrollTo(index, {center}), isAtEnd(), element()}.
 *
 * Browsers lay out some 17 million pixels: no list has more than 250,000 rows.
 */
export function VirtualGrid(props) {
  const { name, label, count, total = count, rowHeight, active = -1, header, row, isFitted, class: extra = "" } = props;
  const scroller = useRef(null);
  const [view, setView] = useState({ start: 0, end: 0 });
  const latest = useRef(props);
  latest.current = props;
  const visible = () => scroller.current.clientHeight - (latest.current.header ? HEADER_HEIGHT : 0);

  function measure() {
    if (!scroller.current) return; // it has left the document meanwhile
    const { count: rows, rowHeight: height, onRange } = latest.current;
    const top = scroller.current.scrollTop;
    const first = Math.floor(top / height);
    const last = Math.min(rows, Math.ceil((top + visible()) / height));
    const start = Math.max(0, Math.floor((first - OVERSCAN) / STEP) * STEP);
    const end = Math.min(rows, Math.ceil((last + OVERSCAN) / STEP) * STEP);
    setView((now) => (now.start === start && now.end === end ? now : { start, end }));
    onRange?.(first, last);
  }
  function scrollTo(index, { center = false } = {}) {
    const element = scroller.current;
    const height = latest.current.rowHeight;
    const at = Math.max(0, Math.min(latest.current.count - 1, index)) * height;
    const end = at + height - visible();
    if (at < element.scrollTop || end > element.scrollTop) {
      element.scrollTop = center ? (at + end) / 2 : at < element.scrollTop ? at : end;
    }
    measure();
  }
  if (props.control) {
    props.control.current = {
      scrollTo,
      isAtEnd: () => scroller.current.scrollTop + visible() >= (latest.current.count - 2) * latest.current.rowHeight,
      element: () => scroller.current,
    };
  }
  useLayoutEffect(() => {
    if (props.initialTop) scroller.current.scrollTop = props.initialTop;
  }, []);
  useLayoutEffect(measure, [count, rowHeight]);
  useEffect(() => {
    let frame = 0;
    const later = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        measure();
      });
    };
    scroller.current.addEventListener("scroll", later, { passive: true });
    const resizes = new ResizeObserver(later);
    resizes.observe(scroller.current);
    return () => {
      cancelAnimationFrame(frame);
      resizes.disconnect();
    };
  }, []);

  function onKeyDown(event) {
    // Links in the rows keep their keys.
    if (event.target !== scroller.current || event.ctrlKey || event.metaKey || event.altKey || !count) return;
    const top = Math.ceil(scroller.current.scrollTop / rowHeight);
    const current = active < 0 ? top - (event.key === "ArrowUp" ? 0 : 1) : active;
    const page = Math.max(1, Math.floor(visible() / rowHeight) - 1);
    const moves = new Map([
      ["ArrowDown", current + 1], ["ArrowUp", current - 1], ["PageDown", current + page], ["PageUp", current - page],
      ["Home", 0], ["End", count - 1],
    ]);
    if (moves.has(event.key)) {
      event.preventDefault();
      const next = Math.max(0, Math.min(count - 1, moves.get(event.key)));
      scrollTo(next);
      props.onActive(next);
    } else if (event.key === "Enter" && active >= 0) {
      event.preventDefault();
      props.onOpen(active, event);
    } else {
      props.onKey?.(event, active);
    }
  }
  function onClick(event, index) {
    // A click on a link is the link's, and who selects text does not want to leave.
    if (!event.target.closest("a, button") && !String(getSelection())) props.onOpen(index, event);
  }

  const end = Math.min(view.end, count);
  const rows = [];
  for (let index = Math.min(view.start, end); index < end; index += 1) {
    const isActive = index === active;
    const { cells, class: kind = "", current } = row(index, isActive);
    rows.push(html`<div key=${index} id="${name}-${index}" role="row" aria-rowindex=${index + (header ? 2 : 1)}
      aria-selected=${isActive} aria-current=${current ? "true" : undefined}
      class="vrow ${kind} ${isActive ? "active" : ""}" style=${{ height: `${rowHeight}px` }}
      onClick=${(event) => onClick(event, index)}>${cells}</div>`);
  }
  const isKnown = active >= view.start && active < end;
  const fitted = isFitted ? { height: `${count * rowHeight + (header ? HEADER_HEIGHT : 0) + 2}px` } : undefined;
  return html`<div class="vgrid ${extra}" style=${fitted} ref=${scroller} role="grid" tabindex="0" aria-label=${label}
    aria-rowcount=${total === null ? -1 : Math.max(total, count) + (header ? 1 : 0)}
    aria-activedescendant=${isKnown ? `${name}-${active}` : undefined} onKeyDown=${onKeyDown}>
    ${header && html`<div class="vhead vrow" role="row" aria-rowindex="1">${header}</div>`}
    <div class="vspace" role="rowgroup" style=${{ height: `${count * rowHeight}px` }}>
      <div class="vwindow" role="presentation" style=${{ transform: `translateY(${view.start * rowHeight}px)` }}>
        ${rows}</div>
    </div>
  </div>`;
}
