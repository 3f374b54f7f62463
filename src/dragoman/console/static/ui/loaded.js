// What a view has to load before it can show it.
import { useEffect, useState } from "../lib/preact.js";

/** What `load(signal)` returns for a key, once that stops changing: {data, error}; {} at first. A key of null waits. */
export function useLoaded(key, load) {
  const [found, setFound] = useState({});
  useEffect(() => {
    if (key === null) return undefined;
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      try {
        setFound({ data: await load(abort.signal) });
      } catch (error) {
        if (error.name !== "AbortError") setFound({ error });
      }
    }, 100);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [key]);
  return found;
}
