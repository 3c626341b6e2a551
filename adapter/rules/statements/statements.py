"""Statements of hosted tools: a template compiled once, and bound to the values of each call. Pure.

No value becomes part of a statement's text, except a name out of an enum and what textual substitution was
asked to let through. A Redis command is split into words before values are put in, so no value becomes two words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from adapter.rules.calls.inputs import Input
from adapter.rules.statements.binding import SqlStatement, compile_sql
from adapter.rules.statements.mongodb_documents import MongoCommand, compile_mongo
from adapter.rules.statements.sql import DIALECTS
from adapter.rules.statements.templates import (
    Bound,
    Environment,
    EnvironmentFailed,
    Part,
    Sources,
    StatementRefused,
    SubstitutionFailed,
    Template,
    named,
    parse,
)

__all__ = (
    "Bound",
    "EnvironmentFailed",
    "Kind",
    "Statement",
    "StatementRefused",
    "SubstitutionFailed",
    "bind",
    "compile_statement",
)

Kind = Literal["sqlite", "postgres", "mysql", "redis", "mongodb"]


@dataclass(frozen=True, slots=True)
class Statement:
    """A compiled template. ``text`` has the driver's placeholders for SQL (``?``, ``$1``, ``%s``) and is the
    template itself for others. ``environment`` names the variables. ``reads`` tells whether it changes nothing, by its
    words; only then may its results be kept.
    """

    text: str
    environment: frozenset[str]
    reads: bool
    form: SqlStatement | RedisCommand | MongoCommand = field(repr=False)
    env: Environment = field(repr=False)


def compile_statement(
    template: str, dialect: Kind, inputs: Mapping[str, Input], env: Environment, *, textual: bool = False
) -> Statement:
    """Compile a template. ``env`` is called at every bind. ``textual`` puts values into an SQL text as they are,
    where nothing can be bound; it refuses strings without an enum. Raises StatementRefused.
    """
    parsed = parse(template, inputs)
    if textual and dialect not in DIALECTS:
        raise StatementRefused(f"textual substitution is for SQL, not for {dialect}")
    if dialect == "redis":
        form: SqlStatement | RedisCommand | MongoCommand = compile_redis(parsed)
    elif dialect == "mongodb":
        form = compile_mongo(parsed)
    else:
        form = compile_sql(parsed, DIALECTS[dialect], textual=textual)
    text = form.text if isinstance(form, SqlStatement) else template
    return Statement(text, parsed.environment, form.reads, form, env)


def bind(statement: Statement, values: Mapping[str, object]) -> Bound:
    """Bind ``values``, which have the types of their inputs. Raises EnvironmentFailed, then SubstitutionFailed for a
    value that is missing or cannot stand in its place.
    """
    for name in statement.environment:
        if statement.env(name) is None:
            raise EnvironmentFailed(name)
    return statement.form.bound(statement.text, Sources(values, statement.env))


# --- Redis -------------------------------------------------------------------------------------------------

_SPACE = re.compile(r"\s*")
_WORD = re.compile(
    r"""
      "(?P<double>(?:[^"\\]|\\.)*)"(?=\s|\Z)
    | '(?P<single>(?:[^'\\]|\\.)*)'(?=\s|\Z)
    | (?P<plain>(?!["'])\S+)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'"}

_BEFORE = "a backslash is in front of a placeholder"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
"""A command's own: drivers take one in quotes with a space in it for two words, and the second is then no argument."""

_RUN = """
EVAL EVAL_RO EVALSHA EVALSHA_RO FCALL FCALL_RO FUNCTION SCRIPT CONFIG CLIENT ACL DEBUG MODULE CLUSTER COMMAND
LATENCY MEMORY OBJECT PUBSUB SLOWLOG XGROUP XINFO
"""
_RUN_THEIR_WORD: Final = frozenset(_RUN.split())
"""Commands whose first word behind the name is a script, a function or another command."""

_CARRY_CODE: Final = frozenset(("FUNCTION", "SCRIPT"))
"""Commands with code also further behind."""

_READ = """
BITCOUNT BITFIELD_RO BITPOS DBSIZE EXISTS EXPIRETIME GEODIST GEOHASH GEOPOS GEORADIUS_RO GEORADIUSBYMEMBER_RO
GEOSEARCH GET GETBIT GETRANGE HEXISTS HGET HGETALL HKEYS HLEN HMGET HRANDFIELD HSCAN HSTRLEN HVALS KEYS LCS LINDEX
LLEN LPOS LRANGE MGET PEXPIRETIME PFCOUNT PTTL RANDOMKEY SCAN SCARD SDIFF SINTER SINTERCARD SISMEMBER SMEMBERS
SMISMEMBER SORT_RO SRANDMEMBER SSCAN STRLEN SUBSTR SUNION TTL TYPE XLEN XPENDING XRANGE XREVRANGE ZCARD ZCOUNT ZDIFF
ZINTER ZINTERCARD ZLEXCOUNT ZMSCORE ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREVRANGE ZREVRANGEBYLEX
ZREVRANGEBYSCORE ZREVRANK ZSCAN ZSCORE ZUNION
"""
_READING: Final = frozenset(_READ.split())


@dataclass(frozen=True, slots=True)
class RedisCommand:
    """A compiled Redis command. ``words`` are its name, in capitals, and its arguments; each stays one word whatever
    its value is.
    """

    words: tuple[tuple[Part, ...], ...]
    reads: bool

    def bound(self, text: str, sources: Sources) -> Bound:
        """The whole command, and the values that took the places of the placeholders, in their order."""
        values = tuple(sources.value(part) for word in self.words for part in named(word))
        return Bound(text, values, tuple(sources.text(word) for word in self.words))


def compile_redis(template: Template) -> RedisCommand:
    """Raises StatementRefused for quotes that do not close a word, and for a placeholder that stands for a
    command, a script or a function.
    """
    name, *arguments = _words(template.shape) or [""]
    if not _NAME.fullmatch(name):
        raise StatementRefused("a Redis statement must begin with the name of a command")
    command = name.upper()
    runs = arguments if command in _CARRY_CODE else arguments[:1] if command in _RUN_THEIR_WORD else []
    for word in runs:
        if any(not isinstance(part, str) and not part.ident for part in template.parts(word)):
            raise StatementRefused(f"{template.source(word)} would be run by {command}")
    for placeholder in template.placeholders:
        declared = placeholder.declared
        if declared is not None and declared.type in ("array", "object"):
            raise StatementRefused(
                f"{placeholder.source} is an {declared.type}: Redis only accepts single values"
            )
    words = tuple(template.parts(word) for word in (command, *arguments))
    return RedisCommand(words, command in _READING)


def _words(shape: str) -> list[str]:
    """Split at white space; a word in quotes may hold some, as on the command line of redis-cli."""
    words: list[str] = []
    at = _skip(shape, 0)
    while at < len(shape):
        found = _WORD.match(shape, at)
        if found is None:
            raise StatementRefused("a quote in the statement must end at the end of a word")
        quoted = found["single"] if found["double"] is None else found["double"]
        words.append(
            found["plain"] if quoted is None else re.sub(r"\\(.)", _unescaped, quoted, flags=re.DOTALL)
        )
        at = _skip(shape, found.end())
    return words


def _skip(shape: str, at: int) -> int:
    found = _SPACE.match(shape, at)
    return found.end() if found else at


def _unescaped(found: re.Match[str]) -> str:
    if found[1] not in _ESCAPES:
        raise StatementRefused(
            f"\\{found[1]} is not an escape in a Redis statement" if found[1].isascii() else _BEFORE
        )
    return _ESCAPES[found[1]]
