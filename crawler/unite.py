"""One server's records from several listings, made one: the newer listing, with what only the older one knew."""

from __future__ import annotations

from toolscout.records import EnvVar, Install, Server, Source

_FACTS = ("title", "description", "summary", "category", "version", "license", "homepage", "popularity")


def united(old: Server, new: Server) -> Server:
    """The newer listing of a server with the sources, and the otherwise missing facts, of the older one.

    How it is started is taken over whole from the newer listing where that is of the same source: what such a listing
    leaves out (a pinned version, say) holds no longer. Another source may simply not know it.
    """
    places = {_place(source): source for source in (*old.sources, *new.sources)}
    facts = {name: getattr(old, name) for name in _FACTS if not getattr(new, name)}
    if new.name in ("", new.install.package) and old.name:
        facts["name"] = old.name
    if not same_sources(old, new):
        facts["install"] = _install(old.install, new.install)
    return new.model_copy(update={**facts, "sources": list(places.values())})


def same_sources(old: Server, new: Server) -> bool:
    """Whether the newer listing is of all the sources that the older one has."""
    return {_place(s) for s in old.sources} <= {_place(s) for s in new.sources}


def _place(source: Source) -> tuple[str, str]:
    return source.marketplace, source.id


def _install(old: Install, new: Install) -> Install:
    if (old.registry, old.package) != (new.registry, new.package):
        return new
    facts = {name: getattr(old, name) for name in ("version", "command", "args", "url") if not getattr(new, name)}
    return new.model_copy(update={**facts, "env": _env(old.env, new.env)})


def _env(old: list[EnvVar], new: list[EnvVar]) -> list[EnvVar]:
    """Variables by name; secret where either says so, since a listing that knows too little must not publish one."""
    variables = {variable.name: variable for variable in old}
    for variable in new:
        known = variables.get(variable.name)
        if known is not None:
            variable = variable.model_copy(
                update={
                    "secret": known.secret or variable.secret,
                    "description": variable.description or known.description,
                }
            )
        variables[variable.name] = variable
    return list(variables.values())
