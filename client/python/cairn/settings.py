"""submit(set={...}): changes fields of a job, named as in the job file.

    {"epochs": 5, "optimizer.adam.beta_1": 0.8, "optimizer": "adam", "metrics": ["accuracy", "auc"],
     "model.layers[2].dense.units": 64, "callbacks[..]": "terminate_on_nan", "data": {"path": "/data", "cache_mib": 64}}

A path is that of `cairn submit --set`: [0] is an element of a list, [..] appends one. A value is a Python one: a dict
sets the fields that it names, a list replaces a list, an enum or a kind is a name in any spelling of Keras', None
clears the field. Errors are ValueError and TypeError, beginning with the path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from google.protobuf import text_format

from cairn import arguments, spelling

STEP = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[(\d+|\.\.)\])?")
STEPS_MAX = 32


def apply(spec: Any, settings: Mapping[str, Any], argument: str = "set") -> None:
    """All of the settings, in their order; where one fails the spec is left half changed."""
    if not isinstance(settings, Mapping):
        raise TypeError(f"{argument}: is {arguments.type_name(settings)}; give a dict of fields and values")
    for path, value in settings.items():
        if not isinstance(path, str):
            raise TypeError(f"{argument}: a field is named by a string, not by {arguments.type_name(path)}")
        put_path(spec, path, value, f"{argument}[{path!r}]")


def put_path(message: Any, path: str, value: Any, where: str) -> None:
    # The dots of "[..]" are no separators.
    steps = [part.replace("[+]", "[..]") for part in path.replace("[..]", "[+]").split(".")]
    if len(steps) > STEPS_MAX:
        raise ValueError(f"{where}: the path is longer than any field's")
    for i, step in enumerate(steps):
        name, index = _parse_step(step, where)
        field = _field(message.DESCRIPTOR, name, where)
        if index is not None and not _repeated(field):
            raise ValueError(f"{where}: {name} is not a list; write it without an index")
        if i + 1 == len(steps):
            _put(message, field, index, value, where)
            return
        message = _descend(message, field, index, where)


def _parse_step(step: str, where: str) -> tuple[str, str | None]:
    match = STEP.fullmatch(step)
    if match is None:
        raise ValueError(f'{where}: "{step}" is not a field; write name, name[0] or name[..]')
    return match.group(1), match.group(2)


def _repeated(field: Any) -> bool:
    return field.label == field.LABEL_REPEATED


def _field(descriptor: Any, name: str, where: str) -> Any:
    field = descriptor.fields_by_name.get(name)
    if field is not None:
        return field
    names = [f.name for f in descriptor.fields]
    close = arguments.nearest(name, names)
    hint = f'; did you mean "{close}"?' if close else f"; it has {', '.join(names) or 'none'}"
    raise ValueError(f'{where}: {descriptor.name} has no field "{name}"{hint}')


def _descend(message: Any, field: Any, index: str | None, where: str) -> Any:
    if field.message_type is None:
        raise ValueError(f"{where}: {field.name} is not a message; nothing lies below it")
    part = getattr(message, field.name)
    if not _repeated(field):
        part.SetInParent()
        return part
    if index is None:
        raise ValueError(
            f"{where}: {field.name} is a list; say which element: {field.name}[0], or {field.name}[..] to append one"
        )
    return part.add() if index == ".." else part[_index(part, field, index, where)]


def _index(part: Any, field: Any, index: str, where: str) -> int:
    number = int(index)
    if number < len(part):
        return number
    append = f"write {field.name}[..] to append"
    if not part:
        raise ValueError(f"{where}: {field.name} is empty; {append}")
    last = f"the last one is {field.name}[{len(part) - 1}]"
    raise ValueError(f"{where}: {field.name}[{index}] does not exist: {last}; {append}")


def _put(message: Any, field: Any, index: str | None, value: Any, where: str) -> None:
    if value is None:
        if index is not None:
            raise TypeError(f"{where}: None clears a whole field; write it without an index")
        message.ClearField(field.name)
    elif not _repeated(field):
        if field.message_type is not None:
            put_message(getattr(message, field.name), value, where)
        else:
            setattr(message, field.name, scalar(field, value, where))
    elif index is None:
        message.ClearField(field.name)
        for item in value if isinstance(value, (list, tuple)) else [value]:
            _append(getattr(message, field.name), field, item, where)
    elif index == "..":
        _append(getattr(message, field.name), field, value, where)
    else:
        part = getattr(message, field.name)
        number = _index(part, field, index, where)
        if field.message_type is not None:
            put_message(part[number], value, where)
        else:
            part[number] = scalar(field, value, where)


def _append(part: Any, field: Any, value: Any, where: str) -> None:
    if field.message_type is not None:
        put_message(part.add(), value, where)
    else:
        part.append(scalar(field, value, where))


def put_message(message: Any, value: Any, where: str) -> None:
    """A dict of fields, the name of a kind, "{text format}", or a message of that type."""
    descriptor = message.DESCRIPTOR
    message.SetInParent()
    if isinstance(value, Mapping):
        for name, part in value.items():
            if not isinstance(name, str):
                raise TypeError(f"{where}: a field is named by a string, not by {arguments.type_name(name)}")
            _put(message, _field(descriptor, name, where), None, part, f"{where}.{name}")
    elif isinstance(value, type(message)):
        message.CopyFrom(value)
    elif isinstance(value, str) and value.startswith("{") and value.endswith("}"):
        message.Clear()
        try:
            text_format.Merge(value[1:-1], message)
        except text_format.ParseError as error:
            raise ValueError(f"{where}: {error}") from None
    elif isinstance(value, str) and spelling.kind_names(descriptor):
        put_kind(message, value, where)
    else:
        raise TypeError(f"{where}: is {arguments.type_name(value)}; {descriptor.name} takes a dict of its fields")


def put_kind(message: Any, name: str, where: str) -> None:
    """ "adam", "mse": a message of that kind, the rest of it left to its defaults."""
    descriptor = message.DESCRIPTOR
    message.Clear()
    enum = spelling.kind_enum(descriptor)
    found = spelling.find_value(enum.enum_type, name) if enum is not None else spelling.find_kind(descriptor, name)
    if found is None:
        raise ValueError(f'{where}: "{name}" is not one of {", ".join(spelling.kind_names(descriptor))}')
    if enum is not None:
        message.kind = found.number
    else:
        getattr(message, found.name).SetInParent()


def scalar(field: Any, value: Any, where: str) -> Any:
    """The value as the field takes it."""
    if field.enum_type is not None:
        return _enum(field.enum_type, value, where)
    kind = field.cpp_type
    if kind == field.CPPTYPE_STRING:
        if hasattr(value, "__fspath__"):
            value = value.__fspath__()
        if not isinstance(value, str):
            raise TypeError(f"{where}: is {arguments.type_name(value)}; give a string")
        return value
    if kind == field.CPPTYPE_BOOL:
        return arguments.boolean(where, value)
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return arguments.real(where, value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    bits = 32 if kind in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 64
    unsigned = kind in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64)
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return arguments.whole(where, value, low, high)


def _enum(enum: Any, value: Any, where: str) -> int:
    names = [v.name for v in enum.values if v.number != 0]
    if isinstance(value, int) and not isinstance(value, bool) and value in enum.values_by_number:
        return value
    if not isinstance(value, str):
        raise TypeError(f"{where}: is {arguments.type_name(value)}; give one of {', '.join(names)}")
    found = spelling.find_value(enum, value)
    if found is None:
        raise ValueError(f'{where}: "{value}" is not one of {", ".join(names)}')
    return found.number
