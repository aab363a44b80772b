// Cells of the matrix: each script registers a function per behaviour and calls `fill`.
//
// A function fails by an exception, and returns a text if a limit refused the call as it should. `fill` appends one JSON
// object per behaviour to the file $SINEW_CELLS.
import { appendFileSync } from 'node:fs';

export const GATEWAY = process.env.SINEW_GATEWAY;
export const KEYED_GATEWAY = process.env.SINEW_KEYED_GATEWAY;
export const KEY = process.env.SINEW_KEY;
export const LARGE = 'x'.repeat(5_000_000);
export const TABLE_BYTES = 360_000;
const MILLISECONDS = 90_000;

const cells = new Map();

export const cell = (behaviour, fills) => cells.set(behaviour, fills);

const shown = (one) => (typeof one === 'string' ? one : one instanceof Error ? `${one.name}: ${one.message}` : JSON.stringify(one));

/** Fails with what was seen, shortened. */
export function check(condition, ...seen) {
  if (!condition) throw new Error(seen.map((one) => String(shown(one)).slice(0, 600)).join(' '));
}

/** Awaits a call that must fail with these words. */
export async function fails(call, words) {
  let error;
  try {
    await call();
  } catch (caught) {
    error = caught;
  }
  check(error !== undefined, `succeeded in place of: ${words}`);
  const told = `${error.name}: ${error.message} ${error.cause?.message ?? ''} ${error.code ?? ''}`;
  check(words.test(told), told);
}

export const REFUSED = /401|[Uu]nauthorized|no credentials/;

export async function fill() {
  const chosen = process.argv.slice(2);
  for (const behaviour of chosen.length ? chosen : cells.keys()) {
    let outcome;
    const late = new Promise((_, reject) => {
      setTimeout(() => reject(new Error(`more than ${MILLISECONDS} ms`)), MILLISECONDS).unref();
    });
    try {
      const limit = await Promise.race([cells.get(behaviour)(), late]);
      outcome = { behaviour, outcome: limit ? 'limit' : 'works', detail: limit ?? '' };
    } catch (error) {
      if (process.env.SINEW_TRACE) console.error(error);
      outcome = { behaviour, outcome: 'fails', detail: String(shown(error)).slice(0, 800) };
    }
    appendFileSync(process.env.SINEW_CELLS, `${JSON.stringify(outcome)}\n`);
  }
  process.exit(0);
}
