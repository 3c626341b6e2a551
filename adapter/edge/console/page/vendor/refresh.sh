#!/usr/bin/env bash
# Installs the pinned packages beside the project and copies what the page needs out of them, licences included.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
there=$(mktemp -d)
trap 'rm -rf "$there"' EXIT
cp "$here"/package.json "$here"/package-lock.json "$there"
(cd "$there" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)

take() { # take FILE NAME: a file of node_modules, under the name that the page asks for
  cp "$there/node_modules/$1" "$here/$2"
  chmod 644 "$here/$2"
}
take marked/lib/marked.esm.js marked.esm.js
take marked/LICENSE marked.LICENSE
take echarts/dist/echarts.min.js echarts.min.js
take echarts/LICENSE echarts.LICENSE
take echarts/NOTICE echarts.NOTICE
take @mermaid-js/tiny/dist/mermaid.tiny.js mermaid.tiny.js
take @mermaid-js/tiny/LICENSE mermaid.LICENSE
# Of the font those weights and features that console.css uses: two fifths less to load.
python3 -m venv "$there/fonts"
"$there/fonts/bin/pip" install -q fonttools==4.68.0 brotli==1.2.1
"$there/fonts/bin/fonttools" varLib.instancer -q \
  "$there/node_modules/@fontsource-variable/inter/files/inter-latin-wght-normal.woff2" wght=400:650 -o "$there/inter.woff2"
"$there/fonts/bin/pyftsubset" "$there/inter.woff2" --unicodes='*' --flavor=woff2 --output-file="$here/inter-latin.woff2" \
  --layout-features=kern,liga,ccmp,locl,mark,mkmk,tnum,cv05,cv11,ss03
chmod 644 "$here/inter-latin.woff2"
take @fontsource-variable/inter/LICENSE inter.LICENSE
