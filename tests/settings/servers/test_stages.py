"""The stages of tools: what they hold, what is refused, whose word counts, and that no secret of theirs is shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.settings.file.load import SettingsError, load
from adapter.settings.reference_page import masked, reference
from adapter.settings.servers.server import ServerSettings
from adapter.settings.servers.stages import ToolStages
from tests.settings.loading import loaded, proxied, refusal

SCRIPT: dict[str, Any] = {"name": "s", "handler": "s.py"}
STATEMENT: dict[str, Any] = {"name": "q", "use": "main", "statement": "SELECT 1"}
MAIN = {"name": "main", "connector": "sqlite", "connection_string": "a.db"}


def hosted(*define: dict[str, Any], tools: Mapping[str, Any] = {}, **server: Any) -> dict[str, Any]:
    """A file with one hosted server that has these tools."""
    entry = {
        "id": "a",
        "upstream": {"transport": "hosted"},
        "tools": {"define": [*define], **tools},
        **server,
    }
    return {"connectors": [MAIN], "servers": [entry]}


# --- what they hold -------------------------------------------------------------------------------------------


def test_a_tool_without_stages_has_none(file: Path) -> None:
    """What no glob matches passes through: nothing is said of it, and every default asks for nothing."""
    (server,) = loaded(file, proxied({"other_*": {"validate": True}})).servers
    stages = server.stages_for("browser_open")
    assert stages == ToolStages() and stages.said == {}
    assert (stages.auth, stages.presenter, stages.validated, stages.middleware) == (None, None, False, [])
    assert (stages.mappers.input, stages.mappers.output) == (None, None)
    limits = stages.limits
    assert (limits.concurrency, limits.rate, limits.egress, limits.timeout) == (None, None, None, None)
    assert (stages.cache.enabled, stages.cache.ttl, stages.cache.vary) == (None, None, None)
    assert (stages.state_sync.cache_control, stages.state_sync.invalidates) == (None, [])
    assert stages.errors.mode is None


def test_all_stages_of_a_hosted_tool(file: Path) -> None:
    """Each is there as it was written, durations in seconds and sizes in bytes."""
    tool = STATEMENT | {
        "rows": True,
        "mappers": {"input": "./input.py#normalize", "output": "./output.py"},
        "auth": {"plugin": "JWT", "policy": {"jwks_url": "${JWKS}", "scopes": "users:read"}},
        "cache": {"enabled": True, "ttl": "30s", "vary": ["identity", "header: X-Tenant"]},
        "middleware": "app/mw.py#audit",
        "limits": {"concurrency": {"max_active": 5}, "rate": {"max": 100}, "egress": "2Mi", "timeout": "10s"},
        "presenter": "user",
        "state_sync": {"cache_control": "no-store", "invalidates": "users.*"},
        "errors": {"mode": "jsonrpc"},
    }
    settings = loaded(file, hosted(tool) | {"presenters": {"user": {}}}, {"JWKS": "https://id/keys"})
    (server,) = settings.servers
    (found,) = server.tools.define
    stages = server.stages_of(found)
    assert found.rows and stages == found.stages
    assert stages.auth is not None and stages.auth.plugin == "jwt"
    assert stages.auth.policy == {"jwks_url": "https://id/keys", "scopes": "users:read"}
    assert (stages.mappers.input, stages.mappers.output) == ("./input.py#normalize", "./output.py")
    assert (stages.cache.ttl, stages.cache.vary) == (30, ["identity", "header:X-Tenant"])
    assert stages.middleware == ["app/mw.py#audit"]
    limits = stages.limits
    assert limits.concurrency is not None and limits.rate is not None
    assert (limits.concurrency.max_active, limits.concurrency.max_queue) == (5, 0)
    assert (limits.rate.window, limits.rate.max, limits.rate.key) == (60, 100, "identity")
    assert (limits.egress, limits.timeout, stages.presenter) == (2 << 20, 10, "user")
    assert (stages.state_sync.cache_control, stages.state_sync.invalidates) == ("no-store", ["users.*"])
    assert settings.errors_for(server, stages).mode == "jsonrpc"


# --- whose word counts ----------------------------------------------------------------------------------------


def test_later_globs_override_key_by_key(file: Path) -> None:
    """A key is taken whole from the last glob that has it; null, and a key that is left out, say nothing."""
    key = {"plugin": "api_key", "policy": {"value": "k"}}
    stages = {
        "*": {"auth": key, "validate": True, "limits": {"timeout": 5, "egress": "1Ki"}},
        "browser_*": {"auth": None, "limits": {"timeout": 9}},
        "browser_ope?": {"validate": False, "middleware": ["m.py"]},
        "Browser_open": {"presenter": "never"},
    }
    (server,) = loaded(file, proxied(stages, presenters={"never": {}})).servers
    opening, other = server.stages_for("browser_open"), server.stages_for("other")
    assert opening.auth is not None and opening.auth.policy == {"value": "k"}
    assert (opening.validated, opening.middleware, opening.presenter) == (False, ["m.py"], None)
    assert (opening.limits.timeout, opening.limits.egress) == (9, None)
    assert (other.validated, other.limits.egress) == (True, 1024)


def test_a_bracket_in_a_glob_is_a_bracket() -> None:
    """Only ``*`` and ``?`` stand for something else."""
    said: Any = {"id": "a", "upstream": {"url": "http://u/"}, "stages": {"a[bc]*": {"validate": True}}}
    server = ServerSettings(**said)
    assert server.stages_for("a[bc]d").validated
    assert not server.stages_for("ab").validated


def test_merging_keeps_the_order() -> None:
    """The last of several that say something counts, also when what it says is the default."""
    first = ToolStages(middleware=["a.py"], validate=True)
    merged = first.overridden(ToolStages(middleware=["b.py"]), ToolStages(validate=False), ToolStages())
    assert (merged.middleware, merged.validated) == (["b.py"], False)
    assert first.middleware == ["a.py"]


def test_a_hosted_tool_has_the_last_word(file: Path) -> None:
    """Its own keys come before those of globs; of limits, it overrides each that it says."""
    own = SCRIPT | {"auth": {"plugin": "allow_all"}, "limits": {"timeout": 2}}
    stages = {
        "*": {"auth": {"plugin": "api_key"}, "limits": {"timeout": 5, "egress": "4Ki"}, "middleware": "m.py"}
    }
    (server,) = loaded(file, hosted(own, stages=stages)).servers
    found = server.stages_of(server.tools.define[0])
    assert found.auth is not None and found.auth.plugin == "allow_all"
    assert (found.limits.timeout, found.limits.egress, found.middleware) == (2, 4096, ["m.py"])


def test_errors_of_core_server_and_tool(file: Path) -> None:
    """Each says instead what it says, and keeps the rest."""
    written = proxied({"pay": {"errors": {"mode": "result"}}}, core={"errors": {"expose": "safe"}})
    written["servers"][0]["errors"] = {"mode": "jsonrpc"}
    settings = loaded(file, written)
    (server,) = settings.servers
    everywhere, paying = settings.errors_for(server), settings.errors_for(server, server.stages_for("pay"))
    assert (settings.core.errors.mode, everywhere.mode, paying.mode) == ("result", "jsonrpc", "result")
    assert {everywhere.expose, paying.expose} == {"safe"}
    assert paying.unknown_tool_code == -32601


# --- what is refused ------------------------------------------------------------------------------------------

STAGES = "servers[0].stages.t"


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ({"atuh": {}}, f"{STAGES}.atuh: is not a known key; the nearest is auth"),
        ({"validated": True}, f"{STAGES}.validated: is not a known key; the nearest is validate"),
        ({"validate": "perhaps"}, f"{STAGES}.validate: must be true or false"),
        ({"auth": {"policy": {}}}, f"{STAGES}.auth.plugin: is required"),
        ({"auth": {"plugin": ""}}, f"{STAGES}.auth.plugin: must not be empty"),
        ({"auth": {"plugin": "jwt", "policy": "s3cret"}}, f"{STAGES}.auth.policy: must be a mapping"),
        ({"auth": {"plugin": "jwt", "value": "s3cret"}}, f"{STAGES}.auth.value: is not a known key"),
        ({"mappers": {"in": "x.py"}}, f"{STAGES}.mappers.in: is not a known key; the nearest is input"),
        ({"middleware": ["a.py", " "]}, f"{STAGES}.middleware[1]: must not be empty"),
        ({"middleware": [5]}, f"{STAGES}.middleware[0]: must be text"),
        ({"limits": {"egress": "1k"}}, f"{STAGES}.limits.egress: must be at least 1024 bytes (1Ki)"),
        ({"limits": {"timeout": "soon"}}, f"{STAGES}.limits.timeout: must be seconds, or text such as"),
        ({"limits": {"rate": {}}}, f"{STAGES}.limits.rate.max: is required"),
        ({"limits": {"rate": {"max": 0}}}, f"{STAGES}.limits.rate.max: input should be greater than 0"),
        (
            {"limits": {"rate": {"max": 1, "key": "ip"}}},
            f"{STAGES}.limits.rate.key: must be identity, principal",
        ),
        ({"limits": {"concurrency": {}}}, f"{STAGES}.limits.concurrency.max_active: is required"),
        (
            {"limits": {"concurrency": {"max_active": 1, "max_queue": -1}}},
            f"{STAGES}.limits.concurrency.max_queue: input should be greater than or equal to 0",
        ),
        (
            {"cache": {"vary": ["ip"]}},
            f"{STAGES}.cache.vary[0]: must be identity, principal, session or header:",
        ),
        ({"cache": {"ttl": 5}}, f"{STAGES}.cache: configures a cache that is not enabled"),
        (
            {"cache": {"vary": ["header:"]}},
            f"{STAGES}.cache.vary[0]: must be identity, principal, session or",
        ),
        ({"presenter": "user"}, f"{STAGES}.presenter: there is no presenter with the name user"),
        (
            {"state_sync": {"cache_control": "max-age"}},
            f"{STAGES}.state_sync.cache_control: must be no-store or",
        ),
        ({"state_sync": {"invalidates": [""]}}, f"{STAGES}.state_sync.invalidates[0]: must not be empty"),
        ({"errors": {"mode": "http"}}, f"{STAGES}.errors.mode: must be result or jsonrpc"),
    ],
)
def test_a_mistake_in_a_stage_is_told_at_its_place(file: Path, stages: dict[str, Any], said: str) -> None:
    """With its glob, in a sentence, and without the value, which may be a secret."""
    found = refusal(file, proxied({"t": stages}))
    assert found.startswith(said) and "s3cret" not in found


@pytest.mark.parametrize("said", [{"ttl": 5, "enabled": False}, {"ttl": 5, "enabled": True}, {}])
def test_h26_a_cache_that_says_whether_it_is_one_is_no_mistake(file: Path, said: dict[str, Any]) -> None:
    """Nor is one that says nothing at all, or follows a server that keeps results."""
    loaded(file, proxied({"t": {"cache": said}}))
    loaded(file, hosted({**STATEMENT, "cache": {"ttl": 5}}, tools={"cache": {"enabled": True}}))


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ({"validate": True}, "validate: is not a known key"),
        ({"presenter": "user"}, "presenter: there is no presenter with the name user"),
        ({"limits": {"egress": 1023}}, "limits.egress: must be at least 1024 bytes"),
        ({"rows": "many"}, "rows: must be true or false"),
        ({"cache": {"enabled": True}}, "cache: is only for read-only statements"),
    ],
)
def test_a_mistake_in_a_hosted_tool_is_told_at_its_place(file: Path, tool: dict[str, Any], said: str) -> None:
    """Hosted tools have the same stages, but for ``validate``: their arguments always are."""
    assert refusal(file, hosted(SCRIPT | tool)).startswith(f"servers[0].tools.define[0].{said}")


def test_a_script_is_not_cached_by_its_name_either(file: Path) -> None:
    """Stages that name the script itself ask for what cannot be; those of a glob concern its statements."""
    cached = {"cache": {"enabled": True}}
    assert loaded(file, hosted(SCRIPT, STATEMENT, stages={"*": cached})).servers
    said = refusal(file, hosted(SCRIPT, stages={"s": cached}))
    assert said.startswith("servers[0].tools.define[0].cache: is only for read-only statements")


# --- auth -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plugin", ["basic", "jwt_bearer", "plugins#check", "allow-all"])
def test_w4_an_unknown_plugin_is_no_start(file: Path, plugin: str) -> None:
    """Nobody finds out at the first call that a tool cannot be called, or that it can be by everybody."""
    sentence = (
        "auth.plugin: is not a plugin: it must be allow_all, api_key, jwt or a function as file.py#function"
    )
    assert refusal(file, proxied({"t": {"auth": {"plugin": plugin}}})) == f"{STAGES}.{sentence}"
    said = refusal(file, hosted(SCRIPT | {"auth": {"plugin": plugin}}))
    assert said == f"servers[0].tools.define[0].{sentence}"


@pytest.mark.parametrize(
    ("plugin", "found"),
    [
        ("allow_all", "allow_all"),
        (" API_Key ", "api_key"),
        ("jwt", "jwt"),
        ("Auth/check.py#Who", "Auth/check.py#Who"),
        ("check.py", "check.py"),
    ],
)
def test_plugins(file: Path, plugin: str, found: str) -> None:
    """The built-in ones in any case, and functions of one's own as they are."""
    (server,) = loaded(file, proxied({"t": {"auth": {"plugin": plugin}}})).servers
    auth = server.stages_for("t").auth
    assert auth is not None and auth.plugin == found


def test_w4_require_auth_names_each_tool_without(file: Path) -> None:
    """Auth of a glob is auth; null is none, and who means everybody says ``allow_all``."""
    public = SCRIPT | {"name": "open", "auth": {"plugin": "allow_all"}}
    tools = [SCRIPT, SCRIPT | {"name": "null", "auth": None}, public, SCRIPT | {"name": "user.get"}]
    stages = {"user.*": {"auth": {"plugin": "jwt"}}}
    said = refusal(file, hosted(*tools, tools={"require_auth": True}, stages=stages)).splitlines()
    sentence = "has no auth, but tools.require_auth is set; to allow everybody, use the plugin allow_all"
    assert said == [
        f"servers[0].tools.define[0]: s {sentence}",
        f"servers[0].tools.define[1]: null {sentence}",
    ]
    assert not loaded(file, hosted(*tools)).servers[0].tools.require_auth


def test_w4_require_auth_covers_tools_in_files(file: Path) -> None:
    """A tool of ``tools.directory`` is judged as one of ``define``."""
    (file.parent / "tools").mkdir()
    (file.parent / "tools" / "pay.yaml").write_text("handler: pay.py")
    said = refusal(file, hosted(tools={"directory": "tools", "require_auth": True}))
    assert "pay has no auth, but tools.require_auth is set" in said


@pytest.mark.parametrize("key", ["directory", "require_auth"])
def test_w4_nothing_is_demanded_of_tools_that_are_elsewhere(file: Path, key: str) -> None:
    """On an upstream's server ``require_auth`` would promise what nobody keeps, so it is refused."""
    written = proxied({})
    written["servers"][0]["tools"] = {"require_auth": True} if key == "require_auth" else {"directory": "t"}
    (file.parent / "t").mkdir()
    (file.parent / "t" / "q.yaml").write_text("handler: q.py")
    said = refusal(file, written)
    assert f"servers[0].tools.{key}: is only for hosted servers" in said


def test_w3_a_policy_is_filled_in_at_load(file: Path) -> None:
    """``${VAR}`` and ``{{ env.VAR }}`` are the variable's value, also inside a text and a list."""
    policy = {"value": "{{ env.KEY }}", "values": ["a-{{env.KEY}}", "${KEY}"], "leeway": 60}
    auth = {"auth": {"plugin": "api_key", "policy": policy}}
    filled = {"value": "k1", "values": ["a-k1", "k1"], "leeway": 60}
    (server,) = loaded(file, proxied({"t": auth}), {"KEY": "k1"}).servers
    assert (found := server.stages_for("t").auth) is not None and found.policy == filled
    (server,) = loaded(file, hosted(SCRIPT | auth), {"KEY": "k1"}).servers
    assert (found := server.tools.define[0].auth) is not None and found.policy == filled


def test_w3_a_policy_is_filled_in_wherever_it_comes_from(file: Path) -> None:
    """A flag that replaces it, and the file of a tool, are read like the settings file."""
    (file.parent / "tools").mkdir()
    text = "handler: pay.py\nauth: {plugin: api_key, policy: {value: '{{ env.KEY }}'}}"
    (file.parent / "tools" / "pay.yaml").write_text(text)
    file.write_text(yaml.safe_dump(hosted(SCRIPT, tools={"directory": "tools"})))
    flags = {"servers.0.tools.define.0.auth": {"plugin": "api_key", "policy": {"value": "{{ env.KEY }}"}}}
    (server,) = load(file, environ={"KEY": "k1"}, overrides=flags).servers
    assert [tool.auth and tool.auth.policy["value"] for tool in server.tools.define] == ["k1", "k1"]
    with pytest.raises(SettingsError) as refused:
        load(file, environ={}, overrides=flags)
    assert [problem.sentence for problem in refused.value.problems] == [
        "the environment variable KEY is not set"
    ] * 2


def test_w3_a_variable_that_is_not_set_is_no_start(file: Path) -> None:
    """The placeholder does not become the key that everybody can read in the file."""
    policy = {"value": "{{ env.KEY }}", "values": ["x", "{{ env.OTHER }}"]}
    said = refusal(file, proxied({"t": {"auth": {"plugin": "api_key", "policy": policy}}})).splitlines()
    assert said == [
        f"{STAGES}.auth.policy.value: the environment variable KEY is not set",
        f"{STAGES}.auth.policy.values[1]: the environment variable OTHER is not set",
    ]


@pytest.mark.parametrize(
    "value", ["{{ inputs.key }}", "{{env:KEY}}", "${1}", ["a", "{{"], {"k": "${"}, "{{ env.NESTED }}"]
)
def test_w3_no_placeholder_stays(file: Path, value: object) -> None:
    """What is left of one, however deep, and also one that a variable held, is refused without being shown."""
    written = proxied({"t": {"auth": {"plugin": "api_key", "policy": {"value": value}}}})
    said = refusal(file, written, {"NESTED": "{{ env.KEY }}", "KEY": "s3cret"})
    sentence = "value holds a placeholder that is neither ${NAME} nor {{ env.NAME }}"
    assert said == f"{STAGES}.auth.policy: {sentence}"


def test_a_policy_is_shown_nowhere(file: Path) -> None:
    """Its names are, so that one sees which keys hold; neither the printed settings nor a repr has the values."""
    auth = {"plugin": "api_key", "policy": {"value": "s3cret", "values": ["s3cret"]}}
    settings = loaded(file, hosted(SCRIPT | {"auth": auth}, stages={"t": {"auth": auth}}))
    shown = masked(settings)["servers"][0]
    hidden = {"plugin": "api_key", "policy": {"value": "***", "values": "***"}}
    assert shown["tools"]["define"][0]["auth"] == shown["stages"]["t"]["auth"] == hidden
    assert "s3cret" not in repr(settings) and "s3cret" not in str(masked(settings))


# --- words of the file ----------------------------------------------------------------------------------------


def test_validate_is_spelled_as_in_the_file(file: Path) -> None:
    """The reference page and the printed settings use the word that the file takes."""
    shown = masked(loaded(file, proxied({"t": {"validate": True}})))["servers"][0]["stages"]["t"]
    assert shown["validate"] is True and "validated" not in shown
    table = reference().partition("## `servers[].stages.NAME`")[2].partition("\n## ")[0]
    assert "| `validate` | true/false | `false` |" in table and "validated" not in table


def test_a_table_stands_in_the_reference_once() -> None:
    """A section that is found in several places is named by the first of them."""
    headings = [line for line in reference().splitlines() if line.startswith("## ")]
    assert len(set(headings)) == len(headings)
    assert (
        "| `auth` | section `servers[].tools.define[].auth` |"
        in reference().partition("[].stages.NAME`\n")[2]
    )
