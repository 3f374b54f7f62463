// The journal of a task in memory: its events in short, read in pages, and the rows of a timeline made from them.
import * as api from "./api.js";

const PAGE = 500;
const MAX_EVENTS = 50_000; // read without being asked for
const PAUSE = 400; // ms between two changes while pages are read
const MIN_FOLD = 6; // so many artifact chunks in a row become one row
const MIN_GAP = 1500; // ms
const GAP_FACTOR = 8; // a gap is so much longer than usual

/**
 * The events of one task, oldest first, as {generation, at (ms or null), size, kind, state, current (the state then),
 * text, run}. Their bodies are not kept: `body` reads one. `onChange()` is called after every page.
 */
export class Journal {
  events = [];
  notes = []; // {generation, kind, size, text}, in the order of the generations
  newest = 0;
  error = null;
  isLoading = false;
  hasMore = true;
  version = 0;
  gapLimit = MIN_GAP; // ms: from when on a time without events is a gap
  #path;
  #limit = MAX_EVENTS;
  #abort = new AbortController();
  #wanted = false;
  #changed = -Infinity;

  constructor(taskId, onChange) {
    this.#path = `tasks/${api.pathOf(taskId)}/journal`;
    this.onChange = onChange;
  }

  close() {
    this.#abort.abort();
  }

  /** Whether reading stopped because the journal is very long. */
  get isCut() {
    return this.hasMore && this.events.length >= this.#limit;
  }

  /** Read on after a cut. */
  more() {
    this.#limit += MAX_EVENTS;
    return this.load();
  }

  /** Read what is new. Calls during a read make it go on once more. */
  async load() {
    if (this.isLoading) {
      this.#wanted = true;
      return;
    }
    this.isLoading = true;
    try {
      do {
        this.#wanted = false;
        await this.#read();
      } while ((this.hasMore || this.#wanted) && !this.isCut);
      this.error = null;
    } catch (error) {
      if (error.name === "AbortError") return;
      this.error = error;
    }
    this.isLoading = false;
    this.onChange();
  }

  async #read() {
    const last = this.events.at(-1)?.generation ?? 0;
    const page = await api.get(this.#path, { after: last, limit: PAGE }, { signal: this.#abort.signal });
    for (const event of page.events) {
      const previous = this.events.at(-1);
      if (previous && event.generation <= previous.generation) continue;
      const { generation, at, size, kind, state, text, run } = event;
      const current = state ?? previous?.current ?? null;
      this.events.push({ generation, at: at && Date.parse(at), size, kind, state, current, text, run });
    }
    // Notes have no numbers, and more may have been stored with the last event since: a page begins with all of its.
    this.notes = [...this.notes.filter((note) => note.generation < last), ...page.notes];
    this.newest = page.newest;
    this.hasMore = page.more;
    // Every change lays the timeline out again: while pages come in fast, not for each of them.
    if (this.hasMore && !this.isCut && performance.now() - this.#changed < PAUSE) return;
    this.#changed = performance.now();
    this.version += 1;
    this.gapLimit = gapLimit(this.events);
    this.onChange();
  }

  /** The whole event with this number, and its JSON as `json`, null if it is too large; null if it is not stored. */
  async body(generation, signal) {
    const page = await api.get(this.#path, { after: generation - 1, limit: 1 }, { signal });
    const [event] = page.events;
    if (event?.generation !== generation) return null;
    return { ...event, json: event.event && api.textBetween(page, ',"event":', `,"run":${event.run}}],"notes":[`) };
  }

  /** The event with this number, else the one before it; null while it is not loaded. */
  event(generation) {
    if (generation > (this.events.at(-1)?.generation ?? 0)) return null;
    return this.events.findLast((event) => event.generation <= generation) ?? null;
  }
}

/** Milliseconds from one event to the next; 0 where a time is not known. */
export function between(previous, event) {
  return previous && event.at !== null && previous.at !== null ? Math.max(0, event.at - previous.at) : 0;
}

/** What is long for one task is usual for another. */
function gapLimit(events) {
  const deltas = Float64Array.from(events, (event, index) => between(events[index - 1], event)).sort();
  return Math.max(MIN_GAP, GAP_FACTOR * (deltas[deltas.length >> 1] ?? 0));
}

const BEFORE = new Set(["request", "answer"]); // these caused the event they are stored with; other notes follow it

/**
 * The rows of a timeline: {type: "run" | "event" | "fold" | "gap" | "missing" | "note", first, last, …}; `first` and
 * `last` are the generations a row stands for. `closed` has the runs that are collapsed, `open` the first generations
 * of folds that are opened.
 */
export function timelineRows({ events, notes, newest, hasMore, gapLimit: limit }, { closed, open }) {
  const rows = [];
  let run = null;
  let nextNote = 0;
  const add = (type, first, last, more) => {
    if (run?.isOpen ?? true) rows.push({ type, first, last, ...more });
  };
  /** Add the notes up to a generation; without `isAll`, of its own only those that caused its event. */
  const addNotes = (generation, isAll = true) => {
    for (; nextNote < notes.length; nextNote += 1) {
      const note = notes[nextNote];
      if (note.generation > generation || (note.generation === generation && !isAll && !BEFORE.has(note.kind))) return;
      add("note", note.generation, note.generation, { note });
    }
  };
  const since = (index) => (index && events[index].at !== null ? between(events[index - 1], events[index]) : null);
  for (let index = 0; index < events.length; ) {
    const event = events[index];
    const previous = events[index - 1];
    const { generation } = event;
    const waited = between(previous, event);
    const isNewRun = event.run !== run?.run;
    addNotes(generation - 1);
    // Between two runs a task waits, and that is worth a row also when the runs are collapsed.
    if (isNewRun) run = null;
    if (previous && (waited >= limit || (isNewRun && waited > 0))) {
      add("gap", generation, generation - 1, { waited, state: previous.current, isNewRun });
    }
    const expected = (previous?.generation ?? 0) + 1;
    if (generation > expected) add("missing", expected, generation - 1);
    if (isNewRun) {
      const isOpen = !closed.has(event.run);
      run = { type: "run", run: event.run, first: generation, at: event.at, events: 0, size: 0, isOpen };
      rows.push(run);
    }
    addNotes(generation, false);
    let end = endOfChunks(events, notes[nextNote]?.generation ?? Infinity, index, limit);
    const isFold = end - index >= MIN_FOLD;
    if (!isFold) end = index + 1;
    const last = events[end - 1];
    const chunks = events.slice(index, end);
    const size = chunks.reduce((sum, each) => sum + each.size, 0);
    const isOpen = isFold && open.has(generation);
    if (isFold) {
      const fold = { events: chunks.length, size, isOpen, event, waited: since(index), duration: between(event, last) };
      add("fold", generation, last.generation, fold);
    }
    if (!isFold || isOpen) {
      chunks.forEach((each, offset) => {
        add("event", each.generation, each.generation, { event: each, waited: since(index + offset), isFolded: isOpen });
      });
    }
    run.last = last.generation;
    run.until = last.at;
    run.events += chunks.length;
    run.size += size;
    run.state = last.current;
    index = end;
  }
  addNotes(Infinity);
  const last = events.at(-1)?.generation ?? 0;
  run = null;
  if (last < newest && !hasMore) add("missing", last + 1, newest);
  return rows;
}

/** Where artifact chunks end that become one row: at anything else that is to be seen, such as a gap or a note. */
function endOfChunks(events, noted, start, limit) {
  let end = start;
  const isNext = (event, previous) =>
    event.kind === "artifact" && (end === start || (event.run === previous.run && previous.generation < noted &&
      event.generation === previous.generation + 1 && between(previous, event) < limit));
  while (end < events.length && isNext(events[end], events[end - 1])) end += 1;
  return end;
}

/** The row that stands for a generation: -1 if there is none. */
export function rowOf(rows, generation) {
  return rows.findLastIndex(({ type, first, last }) =>
    first <= generation && (type === "event" || ((type === "fold" || type === "run") && last >= generation)));
}
