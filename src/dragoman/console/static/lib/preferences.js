// What this browser remembers about how the page looks.
import { effect, signal } from "./preact.js";

const THEMES = ["system", "light", "dark"];
const stored = localStorage.getItem("dragoman.theme");
export const theme = signal(THEMES.includes(stored) ? stored : "system");

effect(() => {
  if (theme.value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
  localStorage.setItem("dragoman.theme", theme.value);
});

export function nextTheme() {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length];
}
