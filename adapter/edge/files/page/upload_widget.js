// Inside a chat the link comes with the tool's result, and the handles go to the model.

/** What a result of the tool says of the link, or null. */
function offered({ structuredContent, content }) {
  try {
    const said = structuredContent ?? JSON.parse(content[0].text);
    return /^https?:$/.test(new URL(said.upload_url).protocol) ? said : null;
  } catch {
    return null;
  }
}

function offer(result) {
  const said = offered(result);
  if (!said) return fail('No upload link came with this message. Ask your assistant for one.');
  const link = said.open_in_browser ?? said.upload_url;
  const left = Math.max(0, (new Date(said.page_expires_at ?? said.expires_at) - Date.now()) / 1000);
  at('server').textContent = said.server_id;
  const most = { file: said.max_file_bytes, files: said.max_files };
  begin({ ...most, total: null, digests: said.sha256_required, left }, link);
  form.hidden = at('intro').hidden = at('browser').hidden = false;
  at('browser').addEventListener('click', () => ask('ui/open-link', { url: link }).catch(() => say('Copy this: ' + link)));
  return say('');
}

handOver = (message) => {
  at('browser').hidden = true;
  const content = [{ type: 'text', text: message }];
  ask('ui/message', { role: 'user', content }).then(
    (result) => say(result?.isError ? 'Copy this for the chat.' : 'Your assistant was told.'),
    () => say('Copy this for the chat.'),
  );
};

connect({
  'ui/notifications/tool-result': offer,
  'ui/notifications/tool-cancelled': () => fail('The assistant cancelled this.'),
});
