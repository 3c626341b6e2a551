"""Named API keys over a socket: whose call it is, and that no key is told to anybody."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from adapter.cli import run
from tests.pipeline.end_to_end.living import ERAS, furnished, living

OPS, CI = "ops-k3y-s3cret", "ci-k3y-s3cret"
SETTINGS = f"""
core: {{log_level: debug, access_log: true}}
servers:
  - id: shop
    mount_path: /mcp
    upstream: {{transport: hosted}}
    stages:
      "*":
        limits: {{rate: {{max: 2, window: 60, key: identity}}}}
        auth:
          plugin: api_key
          policy:
            keys:
              - {{name: ops, value: "{{{{ env.OPS_KEY }}}}"}}
              - {{name: ci, sha256: "{hashlib.sha256(CI.encode()).hexdigest()}"}}
            value: nameless-s3cret
    tools:
      define:
        - {{name: who, handler: "code.py#who"}}
"""

CODE = """
def who(payload, context):
    return [context.user, context.request.principal]
"""


@pytest.mark.parametrize("version", ERAS)
async def test_v22_a_script_is_told_whose_key_it_was(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], version: str
) -> None:
    """By the key's name, by which rates count too; neither answers nor the log hold a key."""
    async with living(tmp_path, SETTINGS, {"OPS_KEY": OPS}, scripts={"code": CODE}) as front:
        for key, name in ((OPS, "ops"), (CI, "ci"), ("nameless-s3cret", "key:cc5b3ca02cf71456")):
            answer = await front.call("who", headers={"X-API-Key": key}, version=version)
            assert answer.data == [name, name]
        assert (await front.call("who", headers={"X-API-Key": OPS}, version=version)).data[0] == "ops"
        limited = await front.call("who", headers={"X-API-Key": OPS}, version=version)
        assert limited.failure["reason"] == "rate"
        refused = await front.call("who", headers={"X-API-Key": "wrong-s3cret"}, version=version)
        assert refused.text == "unauthorized: invalid api key"
    logged = capfd.readouterr()
    assert "s3cret" not in logged.out + logged.err


def test_w3_check_shows_no_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a policy nothing is shown, and of one that is wrong its place alone."""
    monkeypatch.setenv("OPS_KEY", OPS)
    file = furnished(tmp_path, SETTINGS, code=CODE)
    assert run(["check", "--config", str(file)]) == 0
    assert "s3cret" not in capsys.readouterr().out
    file.write_text(SETTINGS.replace("name: ci", "nam: ci"))
    assert run(["check", "--config", str(file)]) == 2
    said = capsys.readouterr().err
    assert "policy.keys[1] has no key nam; known keys: name, sha256, value" in said and "s3cret" not in said
