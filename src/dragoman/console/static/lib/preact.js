// The one place that names the vendored libraries.
import { Component, h } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);

/** A component that is drawn again only when one of its props is another one, or a signal that it reads has changed. */
export function memo(draw) {
  return class extends Component {
    shouldComponentUpdate(next) {
      return Object.keys(next).some((name) => next[name] !== this.props[name]);
    }

    render(props) {
      return h(draw, props);
    }
  };
}

export { h, render, Fragment, createRef } from "../vendor/preact.js";
export { useCallback, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.js";
export { batch, computed, effect, signal, untracked, useComputed, useSignal, useSignalEffect } from "../vendor/signals.js";
