// The same conversation as conversation.py, for the TypeScript clients: node SCRIPT URL HEADERS [MODE].
// It also knows `result` (of a call), `resources` and `read` (`uri`), whose text is the whole result as JSON.
// NODE_PACKAGES names the node_modules directory, which is not above these files.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

export const require = createRequire(`${process.env.NODE_PACKAGES}/`);

const tell = (step, more) => console.log(JSON.stringify({ step, ...more }));

const answer = (promise) =>
  promise.then(
    (text) => ({ ok: true, text }),
    (error) => ({ ok: false, text: `${error.name}: ${error.message}` }),
  );

const text = (result) => {
  const said = result.content[0].text;
  if (result.isError) throw new Error(said);
  return said;
};

// Connects `client` over the transport that `connecting` makes, and obeys the lines of the standard input until it ends.
export async function converse(client, connecting) {
  tell('start', { ok: true });
  const connected = await answer(connecting().then((transport) => client.connect(transport)));
  tell('connect', connected);
  if (!connected.ok) return;
  const result = ({ tool, arguments: given }) => client.callTool({ name: tool, arguments: given });
  const call = (command) => result(command).then(text);
  const whole = {
    result,
    resources: () => client.listResources(),
    read: ({ uri }) => client.readResource({ uri }),
  };
  const list = () => client.listTools().then(({ tools }) => tools.map(({ name }) => name).join(' '));
  for await (const line of createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    if (command.step === 'together') {
      const calls = Array.from({ length: command.count }, () => answer(call(command)));
      tell(command.step, { ok: true, answers: await Promise.all(calls) });
    } else if (command.step in whole) {
      tell(command.step, await answer(whole[command.step](command).then(JSON.stringify)));
    } else {
      tell(command.step, await answer(command.step === 'list' ? list() : call(command)));
    }
  }
  await client.close();
}
