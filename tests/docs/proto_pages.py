"""The page of every message and field of a job, from the protos with their comments."""

import glob
import os
import re
import subprocess
import sys
import tempfile

from google.protobuf import descriptor_pb2

Field = descriptor_pb2.FieldDescriptorProto
# The files that make a JobSpec, in the order of the page.
FILES = (
    ("job", "The job"),
    ("optimizer", "Losses, metrics, optimizers"),
    ("data", "Data"),
    ("callback", "Callbacks"),
    ("model", "The model"),
    ("external", "Models that a program computes"),
    ("layer_fields", "What layers share"),
    ("feature_layers", "Layers: features, normalization, attention"),
    ("window_layers", "Layers: convolutions, pooling, size"),
    ("recurrent_layers", "Layers: recurrent"),
    ("tensor_layers", "Layers: operations on tensors"),
    ("category_layers", "Layers: categories"),
    ("types", "Number types and devices"),
)
SCALARS = {
    Field.TYPE_DOUBLE: "double",
    Field.TYPE_FLOAT: "float",
    Field.TYPE_INT64: "int64",
    Field.TYPE_UINT64: "uint64",
    Field.TYPE_INT32: "int32",
    Field.TYPE_UINT32: "uint32",
    Field.TYPE_BOOL: "bool",
    Field.TYPE_STRING: "string",
    Field.TYPE_BYTES: "bytes",
}
ZEROS = {"bool": "false", "string": "empty"}
DEFAULT = re.compile(r"(?<![-\w])[Dd]efaults?:? (?!is\b|of\b|of the\b)(.+?)(?=[.;:](?:\s|$)|$)")


def descriptors(source):
    folder = os.path.join(source, "proto")
    paths = sorted(glob.glob(os.path.join(folder, "cairn/v1/*.proto")))
    with tempfile.NamedTemporaryFile(suffix=".pb") as out:
        argv = ["protoc", f"-I{folder}", "--include_source_info", f"--descriptor_set_out={out.name}", *paths]
        subprocess.run(argv, check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read())
    return {os.path.basename(f.name).removesuffix(".proto"): f for f in files.file}


def comments(file):
    """By path in the file: the comment before a declaration and the one behind it."""
    return {
        tuple(place.path): " ".join(f"{place.leading_comments} {place.trailing_comments}".split())
        for place in file.source_code_info.location
    }


def link(title, page):
    """To another page, from docs/reference."""
    return f"[{title}](../{page}.md)"


def escape(text):
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("[..]", "\\[..]")


class Page:
    def __init__(self, files):
        self.files = files
        self.anchors = {}  # ".cairn.v1.Layer": "layer"
        self.enum_zero = {}  # full name of an enum: what its zero means
        for file, _ in FILES:
            self.name_types(files[file])

    def name_types(self, file):
        told = comments(file)

        def enum(prefix, e, path):
            self.anchors[f"{prefix}.{e.name}"] = self.title(f"{prefix}.{e.name}").lower().replace(".", "")
            zero = told.get((*path, 2, 0), "") or e.value[0].name
            self.enum_zero[f"{prefix}.{e.name}"] = re.split(r"[:;.]", zero)[0]

        def message(prefix, m, path):
            name = f"{prefix}.{m.name}"
            self.anchors[name] = self.title(name).lower().replace(".", "")
            for i, e in enumerate(m.enum_type):
                enum(name, e, (*path, 4, i))
            for i, nested in enumerate(m.nested_type):
                message(name, nested, (*path, 3, i))

        for i, m in enumerate(file.message_type):
            message(".cairn.v1", m, (4, i))
        for i, e in enumerate(file.enum_type):
            enum(".cairn.v1", e, (5, i))

    @staticmethod
    def title(name):
        return name.removeprefix(".cairn.v1.")

    def type_text(self, field):
        name = SCALARS.get(field.type)
        if name is None:
            if field.type_name not in self.anchors:
                sys.exit(f"{field.type_name} is part of a job, and its file is not in FILES")
            name = f"[{self.title(field.type_name)}](#{self.anchors[field.type_name]})"
        return f"list of {name}" if field.label == Field.LABEL_REPEATED else name

    def default_text(self, field, comment):
        if "REQUIRED" in comment:
            return "required"
        stated = [re.sub(r" \(.*", "", text) for text in DEFAULT.findall(comment)]
        stated += re.findall(r'("\w+") \(default\)', comment)
        if len(stated) > 1 or any(len(text) > 60 for text in stated):
            return "see the meaning"
        if stated:
            return stated[0]
        if field.label == Field.LABEL_REPEATED:
            return "empty"
        if field.type == Field.TYPE_ENUM:
            return self.enum_zero.get(field.type_name, "")
        if field.type == Field.TYPE_MESSAGE or field.proto3_optional:
            return "unset"
        return ZEROS.get(SCALARS[field.type], "0")

    def enum_section(self, name, e, path, told):
        yield f"### {self.title(name)}\n\n{escape(told.get(path, ''))}\n\n| value | meaning |\n|---|---|"
        for i, value in enumerate(e.value):
            yield f"| `{value.name}` | {escape(told.get((*path, 2, i), ''))} |"
        yield ""

    def message_sections(self, prefix, m, path, told):
        name = f"{prefix}.{m.name}"
        yield f"### {self.title(name)}\n\n{escape(told.get(path, ''))}\n"
        if m.field:
            yield "| field | type | default | meaning |\n|---|---|---|---|"
        for i, field in enumerate(m.field):
            comment = told.get((*path, 2, i), "")
            of_oneof = field.HasField("oneof_index") and not field.proto3_optional
            default = "one of" if of_oneof else self.default_text(field, comment)
            yield f"| `{field.name}` | {self.type_text(field)} | {escape(default)} | {escape(comment)} |"
        yield ""
        for i, e in enumerate(m.enum_type):
            yield from self.enum_section(f"{name}.{e.name}", e, (*path, 4, i), told)
        for i, nested in enumerate(m.nested_type):
            yield from self.message_sections(name, nested, (*path, 3, i), told)

    def file_sections(self, file):
        told = comments(file)
        for i, m in enumerate(file.message_type):
            yield from self.message_sections(".cairn.v1", m, (4, i), told)
        for i, e in enumerate(file.enum_type):
            yield from self.enum_section(f".cairn.v1.{e.name}", e, (5, i), told)


def job_page(source):
    page = Page(descriptors(source))
    parts = [
        "# Job fields\n",
        "Every message and field of a job, from `proto/cairn/v1`. A job is a [JobSpec](#jobspec). Of fields whose\n"
        "default is *one of*, a message holds exactly one. A field that is left out and whose meaning names no\n"
        "default is 0, false, empty or unset, as in the table; then what it would change is left as Keras has it.\n"
        f"{link('Jobs', 'guides/jobs')} says how one is written.\n",
    ]
    for name, title in FILES:
        parts.append(f"## {title}\n\nFrom `proto/cairn/v1/{name}.proto`.\n")
        parts += page.file_sections(page.files[name])
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))
