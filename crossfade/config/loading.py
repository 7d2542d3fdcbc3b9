"""Read the config file: YAML to frozen values, with errors that name file, line, key and the nearest valid key."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from crossfade.config.model import Config

MAX_FILE_BYTES = 1024 * 1024
MAX_VALUES = 100_000
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

Path_ = tuple[str | int, ...]


class ConfigError(ValueError):
    """The config cannot be used. The message is for a person: one line for each fault, with file and line."""


def load_config(path: Path, environ: Mapping[str, str] | None = None, *, secrets: bool = True) -> Config:
    """Read and check the config file at ``path``; its relative paths are taken from the file's own folder.

    Without ``secrets`` the values of ``auth`` are left as written, so that no variable or file has to be there.
    Raises ``ConfigError``, and nothing else on bad input.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{path}: larger than {MAX_FILE_BYTES} bytes; this is no config file")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such file. Write one, or name another with --config") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    config = parse_config(text, name=str(path), environ=environ, secrets=secrets)
    return config.anchored(path.resolve().parent)


def parse_config(
    text: str, *, name: str = "config", environ: Mapping[str, str] | None = None, secrets: bool = True
) -> Config:
    """Check the text of a config file; ``name`` is what errors call it."""
    document = _read_yaml(text, name)
    if not isinstance(document, Mapping):
        raise ConfigError(f"{name}: empty or not a mapping; it needs at least the keys backends and routes")
    resolver = _Resolver(document, name, os.environ if environ is None else environ, secrets)
    try:
        plain = resolver.resolve(document, ())
    except RecursionError as error:
        raise ConfigError(f"{name}: nested too deep, or a part of itself") from error
    if resolver.faults:
        raise ConfigError("\n".join(resolver.faults))
    try:
        return Config.model_validate(plain)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(error, document, name))) from error


def _read_yaml(text: str, name: str) -> Any:
    """Parse YAML. What is said of a fault never holds a value from the file: it may be a secret."""
    try:
        return YAML(typ="rt").load(text)
    except DuplicateKeyError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{name}:{line}: a key is there twice") from error
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{name}:{line}: not valid YAML: {error.problem or error.context}") from error
    except (YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{name}: not valid YAML ({type(error).__name__})") from error


class _Resolver:
    """Turn the document into plain values: ``${ENV}`` replaced, ``file:`` secrets read, what is missing noted."""

    def __init__(self, document: Any, name: str, environ: Mapping[str, str], secrets: bool) -> None:
        self._document, self._name, self._environ, self._secrets = document, name, environ, secrets
        self.faults: list[str] = []
        self._values = 0

    def resolve(self, node: Any, path: Path_) -> Any:
        self._values += 1
        if self._values > MAX_VALUES:  # a few aliases of aliases make any number of them
            raise ConfigError(f"{self._name}: more than {MAX_VALUES} values; this is no config file")
        if isinstance(node, Mapping):
            return {str(key): self.resolve(value, (*path, str(key))) for key, value in node.items()}
        if isinstance(node, Sequence) and not isinstance(node, str):
            return [self.resolve(value, (*path, index)) for index, value in enumerate(node)]
        return self._text(str(node), path) if isinstance(node, str) else node

    def _text(self, text: str, path: Path_) -> str:
        is_secret = path[-2:] == ("auth", "value")
        if is_secret and not self._secrets:
            return text
        where = f"{self._name}:{_line(self._document, path)}: {_dotted(path)}"
        missing = [name for name in _VARIABLE.findall(text) if name not in self._environ]
        self.faults.extend(f"{where}: the environment variable {name} is not set" for name in missing)
        value = _VARIABLE.sub(lambda match: self._environ.get(match.group(1), ""), text)
        if not is_secret or not value.startswith("file:"):
            return value
        try:
            return Path(value.removeprefix("file:")).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            self.faults.append(f"{where}: the secret's file cannot be read: {error}")
            return ""


def _explain(error: ValidationError, document: Any, name: str) -> Iterator[str]:
    faults = error.errors(include_url=False, include_context=True, include_input=True)
    for fault in faults:
        if fault["type"] == "too_short" and any(
            other["loc"][: len(fault["loc"])] == fault["loc"] != other["loc"] for other in faults
        ):
            continue  # pydantic counts the faulty items of a tuple as absent
        path: Path_ = _without_union_tags(fault["loc"])
        where = f"{name}:{_line(document, path)}: {_dotted(path) or 'config'}"
        if fault["type"] == "extra_forbidden":
            yield f"{where}: unknown key{_nearest(path)}"
        elif fault["type"] == "missing":
            yield f"{where}: this key is required"
        else:
            yield f"{where}: {fault['msg'].removeprefix('Value error, ')}{_nearest_value(fault)}"


def _without_union_tags(path: Path_) -> Path_:
    """Drop the names that pydantic puts behind ``active`` for the two forms that it may have."""
    tags = ("constrained-str", "dict[")
    pairs = zip((None, *path), path, strict=False)
    return tuple(part for before, part in pairs if not (before == "active" and str(part).startswith(tags)))


def _nearest_value(fault: ErrorDetails) -> str:
    """Return the nearest of the words that a key may have. Only such words are ever repeated, never a secret."""
    if fault["type"] != "literal_error":
        return ""
    known = re.findall(r"'([^']*)'", str(fault.get("ctx", {}).get("expected", "")))
    close = difflib.get_close_matches(str(fault["input"]), known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


def _nearest(path: Path_) -> str:
    known = list(_fields_at(path[:-1]))
    close = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; valid keys are {', '.join(known)}" if known else ""


def _fields_at(path: Path_) -> Iterator[str]:
    """Yield the keys that the config allows at ``path``."""
    model: type[BaseModel] = Config
    for part in path:
        if isinstance(part, int) or part not in model.model_fields:
            continue
        nested = [cls for cls in models_in(model.model_fields[part].annotation) if cls is not model]
        if nested:
            model = nested[0]
    yield from model.model_fields


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that a field's type mentions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from models_in(argument)


def _line(document: Any, path: Path_) -> int:
    """Return the 1-based line of the deepest part of ``path`` that exists in the document."""
    line = 1
    node = document
    for part in path:
        try:
            position = node.lc.item(part) if isinstance(part, int) else node.lc.key(part)
            line, node = position[0] + 1, node[part]
        except (AttributeError, KeyError, IndexError, TypeError):
            break
    return line


def _dotted(path: Path_) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
