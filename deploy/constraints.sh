#!/usr/bin/env bash
# Prints the versions that an image with all extras gets today, one a line. Run it from the repository's root.
set -euo pipefail
there=$(mktemp -d)
trap 'rm -rf "$there"' EXIT
python3 -m venv "$there"
"$there"/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: \
  $(python3 -c '
import tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
extras = project["optional-dependencies"]
needed = [*project["dependencies"], *(each for name in extras if name not in ("all", "dev", "docs") for each in extras[name])]
print(*(each.replace(" ", "") for each in needed))')
echo "# The versions in the image, of every extra: \`make constraints\` writes them."
"$there"/bin/python -m pip freeze
