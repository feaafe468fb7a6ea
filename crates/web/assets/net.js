// Asking the server. The token, if there is one, is kept for this tab alone and travels in a header; there are no cookies.

import { send, trusted } from './transport.js';

const KEY = 'isotherm-token';
let token = null;
try {
  token = sessionStorage.getItem(KEY);
} catch {
  // Without storage it is kept until the page is left.
}

export const hasToken = () => trusted || token !== null;

export function useToken(text) {
  token = text;
  try {
    if (text === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, text);
  } catch {
    // See above.
  }
}

/// What the server answered, or why it did not. `status` is 0 where nobody answered.
export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function call(path, options = {}) {
  const headers = { ...options.headers };
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  let answer;
  try {
    answer = await send(path, { ...options, headers });
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new Refused(0, 'nobody answers at this address any more');
  }
  if (!answer.ok) throw new Refused(answer.status, (await answer.text()).trim());
  return answer;
}

const query = (values) => new URLSearchParams(values).toString();

export const get = async (what, values = {}, signal) => (await call(`/api/${what}?${query(values)}`, { signal })).json();

export const post = async (what, body) =>
  (
    await call(`/api/${what}`, { method: 'POST', body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } })
  ).json();

/// Silence that long means that the connection is dead: the server says something every three seconds.
const SILENCE_MS = 10000;

/// The events of a volume, until `signal` or the end of the connection. EventSource could not send the token.
export async function events(volume, signal, hear) {
  const own = new AbortController();
  const stop = () => own.abort();
  signal.addEventListener('abort', stop, { once: true });
  let timer = setTimeout(stop, SILENCE_MS);
  try {
    const answer = await call(`/api/events?${query({ volume })}`, { signal: own.signal });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(stop, SILENCE_MS);
      hear('alive', null);
      text += value;
      let end;
      while ((end = text.indexOf('\n\n')) >= 0) {
        let [name, data] = ['message', ''];
        for (const line of text.slice(0, end).split('\n')) {
          if (line.startsWith('event:')) name = line.slice(6).trim();
          else if (line.startsWith('data:')) data += line.slice(5).trimStart();
        }
        text = text.slice(end + 2);
        try {
          if (data) hear(name, JSON.parse(data));
        } catch (e) {
          // A fault of the page is none of the connection.
          reportError(e);
        }
      }
    }
  } catch (e) {
    if (e.name === 'AbortError') {
      if (signal.aborted) return;
      throw new Refused(0, 'the server says nothing any more');
    }
    if (e instanceof Refused) throw e;
    throw new Refused(0, 'the connection was lost');
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', stop);
    own.abort();
  }
}
