"""Plug-ins by name: one file or sub-package each, found by scanning, described without importing.

A plug-in registers its class with a decorator whose arguments are literals:

    @register_reward("nnm", config=NuclearNormConfig)
    class NuclearNorm(IntrinsicReward): ...

Most plug-in files import torch, which takes seconds. Names, summaries and configuration fields are therefore read from
the file's syntax tree: its registrations, its dataclasses and the plain assignments they use are evaluated, the rest is
not. A wrong configuration is answered before torch is ever loaded. `Registry.get` imports the file for real.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import importlib.metadata
import importlib.util
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from intrigue.errors import ConfigError, Problem, unknown_name

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])

# Modules a configuration dataclass may use; none of them loads torch.
LIGHT_MODULES = ("__future__", "dataclasses", "enum", "math", "typing", "intrigue.fields")


@dataclass(frozen=True)
class EmptyConfig:
    """The configuration of a plug-in that has none."""


@dataclass(frozen=True)
class Declaration:
    """The registration in a plug-in file, read without importing it."""

    name: str
    class_name: str
    summary: str
    docstring: str
    origin: str
    config: type[Any]
    namespace: Mapping[str, Any] = field(repr=False)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    """The trailing comment of each configuration field: its source or its meaning."""
    members: frozenset[str] = frozenset()
    """Names that the class's own body defines: a hint at what it requires, certain only after importing it."""

    def hints(self) -> dict[str, Any]:
        """The types of the configuration's fields, limits included."""
        return typing.get_type_hints(self.config, globalns=dict(self.namespace), include_extras=True)

    def default(self, name: str) -> Any:
        """The default of one configuration field under this name."""
        if name in self.defaults:
            return self.defaults[name]
        spec = {each.name: each for each in dataclasses.fields(self.config)}[name]
        return spec.default_factory() if spec.default_factory is not dataclasses.MISSING else spec.default


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A registered class, imported and ready to build."""

    cls: type[T]
    config: type[Any]
    defaults: Mapping[str, Any]


class Registry(Generic[T]):
    """The plug-ins of one kind: the files of one package, installed entry points, and files named by the user."""

    def __init__(
        self, kind: str, package: str, plural: str | None = None, short_names: Mapping[str, str] | None = None
    ) -> None:
        self.kind = kind
        self.plural = plural or f"{kind}s"
        self.package = package
        self.short_names = short_names or {}
        """Public names of settings classes that are not the class's name without `Config`."""
        self._entries: dict[str, Entry[T]] = {}
        self._files: dict[str, Path] = {}
        self._extra_files: list[Path] = []

    def register(
        self, name: str, config: type[Any] = EmptyConfig, defaults: Mapping[str, Any] | None = None
    ) -> Callable[[C], C]:
        """A decorator that registers the class under `name`."""

        def register_class(cls: C) -> C:
            self._entries[name] = Entry(cast("type[T]", cls), config, dict(defaults or {}))
            return cls

        return register_class

    def names(self) -> list[str]:
        """Every known name, sorted."""
        return sorted(self.declarations())

    def declarations(self) -> dict[str, Declaration]:
        """Every plug-in's own description, by name."""
        declared: dict[str, Declaration] = {}
        for path in self._plugin_files():
            for declaration in read_declarations(path, f"register_{self.kind}"):
                if declaration.name in declared:
                    other = declared[declaration.name].origin
                    raise ConfigError(f"{self.kind} {declaration.name!r} is registered twice: in {other} and in {path}")
                declared[declaration.name] = declaration
                self._files[declaration.name] = path
        return declared

    def declaration(self, name: str) -> Declaration:
        """One plug-in's own description."""
        known = self.declarations()
        if name not in known:
            raise ConfigError([Problem(self.kind, unknown_name(name, known, f"See `intrigue list {self.plural}`."))])
        return known[name]

    def get(self, name: str) -> Entry[T]:
        """The registered class, importing its file when needed."""
        if name not in self._entries:
            self.declaration(name)
            import_file(self._files[name], self.package)
        return self._entries[name]

    def settings_names(self) -> dict[str, str]:
        """The public name of each settings class, and the plug-in it belongs to; a variant with defaults has none."""
        return {
            self.short_names.get(each.config.__name__, each.config.__name__.removesuffix("Config")): name
            for name, each in self.declarations().items()
            if each.config.__name__ != EmptyConfig.__name__ and not each.defaults
        }

    def settings_class(self, public_name: str) -> type[Any]:
        """The settings class of a public name, for `__getattr__` of the package; imports the plug-in's file."""
        names = self.settings_names() if public_name[:1].isupper() else {}
        if public_name not in names:
            raise AttributeError(f"module {self.package!r} has no attribute {public_name!r}")
        return self.get(names[public_name]).config

    def read_settings(self, settings: object) -> tuple[str, dict[str, Any]] | None:
        """The plug-in's name and its options, given an instance of its settings class; None for any other value."""
        for name, entry in self._entries.items():
            if type(settings) is entry.config and entry.config is not EmptyConfig and not entry.defaults:
                return name, {
                    each.name: getattr(settings, each.name) for each in dataclasses.fields(cast("Any", settings))
                }
        return None

    def add_file(self, path: Path) -> None:
        """Add the plug-ins of a file outside the package."""
        if path not in self._extra_files:
            self._extra_files.append(path)

    def extra_files(self) -> list[Path]:
        """The files added by hand, in order."""
        return list(self._extra_files)

    def _plugin_files(self) -> Iterator[Path]:
        folder = _package_folder(self.package)
        assert folder is not None
        for path in sorted([*folder.glob("*.py"), *folder.glob("*/__init__.py")]):
            if path.parent != folder or not path.name.startswith("_"):
                yield path
        for point in _entry_points(f"intrigue.{self.plural}"):
            found = importlib.util.find_spec(point.module)
            if found is not None and found.origin is not None:
                yield Path(found.origin)
        yield from self._extra_files


@functools.cache
def _entry_points(group: str) -> importlib.metadata.EntryPoints:
    """The entry points of installed packages; cached, because the scan takes 10 ms."""
    return importlib.metadata.entry_points(group=group)


def read_declarations(path: Path, decorator: str) -> list[Declaration]:
    """The registrations in a file, with their configurations, without running the rest of it."""
    return _read_declarations(path, decorator, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=512)
def _read_declarations(path: Path, decorator: str, changed: int) -> list[Declaration]:
    """`changed` is part of the cache key only: an edited file is read again."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source, filename=str(path))
    registrations = list(_registrations(tree, decorator))
    if not registrations:
        return []
    # Dataclasses look their module up by name; ours stands in for the file that is not imported.
    namespace: dict[str, Any] = {"__name__": __name__, "EmptyConfig": EmptyConfig}
    light = [node for node in tree.body if _is_light(node)]
    exec(compile(ast.Module(light, type_ignores=[]), str(path), "exec"), namespace)
    docstring = ast.get_docstring(tree) or ""
    notes = field_notes(tree, source)
    members = {node.name: _members(node) for node in tree.body if isinstance(node, ast.ClassDef)}
    return [
        Declaration(
            name=name,
            class_name=class_name,
            summary=(own or docstring).split("\n")[0].strip(),
            docstring=docstring,
            origin=str(path),
            config=namespace[config],
            namespace=namespace,
            defaults=defaults,
            notes=notes.get(config, {}),
            members=members.get(class_name, frozenset()),
        )
        for class_name, name, config, defaults, own in registrations
    ]


def import_file(path: Path, package: str) -> None:
    """Import a plug-in file; one that lies in the package, or is a sub-package of it, under its name there."""
    place = path.parent if path.name == "__init__.py" else path
    if place.parent == _package_folder(package):
        importlib.import_module(f"{package}.{place.stem}")
        return
    module_name = f"intrigue_plugin_{place.stem}"
    plugin = importlib.util.spec_from_file_location(module_name, path)
    assert plugin is not None and plugin.loader is not None
    module = importlib.util.module_from_spec(plugin)
    sys.modules[module_name] = module
    plugin.loader.exec_module(module)


def _package_folder(package: str) -> Path | None:
    """Where an importable package lies."""
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _registrations(tree: ast.Module, decorator: str) -> Iterator[tuple[str, str, str, dict[str, Any], str]]:
    """Class or function, name, configuration, defaults; and a function's own docstring: several share a file."""
    for node in tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef):
            continue
        for call in reversed(node.decorator_list):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == decorator:
                keywords = {word.arg: word.value for word in call.keywords}
                config = keywords.get("config")
                defaults = keywords.get("defaults")
                yield (
                    node.name,
                    ast.literal_eval(call.args[0]),
                    config.id if isinstance(config, ast.Name) else "EmptyConfig",
                    ast.literal_eval(defaults) if defaults is not None else {},
                    (ast.get_docstring(node) or "") if isinstance(node, ast.FunctionDef) else "",
                )


def _members(node: ast.ClassDef) -> frozenset[str]:
    methods = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
    targets = [target for each in node.body if isinstance(each, ast.Assign) for target in each.targets]
    targets += [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
    return frozenset([*methods, *(target.id for target in targets if isinstance(target, ast.Name))])


def _is_light(node: ast.stmt) -> bool:
    match node:
        case ast.ImportFrom(module=module):
            return module in LIGHT_MODULES
        case ast.Import(names=names):
            return all(alias.name in LIGHT_MODULES for alias in names)
        case ast.ClassDef(decorator_list=decorators):
            return any("dataclass" in ast.unparse(each) for each in decorators)
        case ast.Assign(value=value):
            return isinstance(value, ast.Constant) or ast.unparse(value).startswith(("Literal[", "Annotated["))
        case _:
            return False


def field_notes(tree: ast.Module, source: str) -> dict[str, dict[str, str]]:
    """The trailing comments of every class's annotated fields, by class and field."""
    lines = source.splitlines()
    notes: dict[str, dict[str, str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            for entry in node.body:
                if isinstance(entry, ast.AnnAssign) and isinstance(entry.target, ast.Name):
                    line = lines[(entry.end_lineno or entry.lineno) - 1]
                    _, mark, comment = line.partition("  # ")
                    if mark:
                        notes.setdefault(node.name, {})[entry.target.id] = comment.strip()
    return notes
