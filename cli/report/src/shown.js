// The time that the page is about: all of it, the part that the plots are zoomed to, or a moment.
// { from, to } in seconds since the trigger, and kind: "all", "zoom", "pointed" (at a moment) or "kept" (a moment that was clicked).

export const shown = { kind: 'all', from: 0, to: 0 };

const listeners = [];

export function onShown(listener) {
	listeners.push(listener);
}

export function show(kind, from, to) {
	if (shown.kind === kind && shown.from === from && shown.to === to)
		return;
	Object.assign(shown, { kind, from, to });
	listeners.forEach(listener => listener(shown));
}
