#include "common/formats/safetensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/digest.h"
#include "common/base/files.h"
#include "common/formats/limits.h"
#include "common/formats/plain_file.h"
#include "common/tensor/dtype.h"

namespace cairn {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "tensor bytes are written as they are in memory");

constexpr char kMetadataKey[] = "__metadata__";
constexpr size_t kLengthBytes = 8;

// ---- writing ----

absl::StatusOr<std::string> MakeHeader(const std::vector<SafetensorView>& tensors,
                                       const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  uint64_t offset = 0;
  for (const SafetensorView& t : tensors) {
    if (t.name.empty() || t.name == kMetadataKey || header.contains(t.name)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tensor \"%s\": the name is empty, reserved or used twice", t.name));
    }
    if (NumElements(t.shape) != static_cast<int64_t>(t.values.size())) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tensor \"%s\": shape %s, but %d values", t.name, ToString(t.shape), t.values.size()));
    }
    const uint64_t end = offset + t.values.size() * sizeof(float);
    header[t.name] = {{"dtype", "F32"}, {"shape", t.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const json::exception&) {  // dump() throws it for text that is not UTF-8
    return absl::InvalidArgumentError("a tensor's name or the metadata is not UTF-8");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

using Write = std::function<absl::Status(absl::string_view bytes)>;

// digest: null: not wanted.
absl::Status WriteBytes(const std::string& header, const std::vector<SafetensorView>& tensors, const Write& to,
                        std::string* digest) {
  Digest sum;
  const auto write = [&](const void* data, size_t size) {
    if (digest != nullptr) sum.Add(data, size);
    return to({static_cast<const char*>(data), size});
  };
  const uint64_t length = header.size();
  CAIRN_RETURN_IF_ERROR(write(&length, sizeof(length)));
  CAIRN_RETURN_IF_ERROR(write(header.data(), header.size()));
  for (const SafetensorView& t : tensors) {
    CAIRN_RETURN_IF_ERROR(write(t.values.data(), t.values.size() * sizeof(float)));
  }
  if (digest != nullptr) *digest = sum.Hex();
  return absl::OkStatus();
}

// Writes to `beside`, which will be renamed to `path`; errors name `path`.
absl::Status WriteFile(const std::string& beside, const std::string& path, const std::string& header,
                       const std::vector<SafetensorView>& tensors, std::string* digest) {
  const FileDescriptor file = CreateBeside(beside);
  if (file.get() < 0) return FileError(path, "cannot create a file there");
  return WriteBytes(
      header, tensors, [&](absl::string_view bytes) { return WriteAll(file.get(), bytes, path); }, digest);
}

// ---- reading ----

std::optional<v1::DataType> ParseDtype(absl::string_view text) {
  if (text == "F32") return v1::FLOAT32;
  if (text == "F16") return v1::FLOAT16;
  if (text == "BF16") return v1::BFLOAT16;
  return std::nullopt;
}

// Bytes of one integer; 0: the dtype is not an integer type.
size_t IntegerBytes(absl::string_view dtype) {
  if (dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL") return 1;
  return 0;
}

// Parses the header and checks only its JSON: one object, no duplicate keys, no deep nesting (its destructor would
// recurse).
absl::StatusOr<json> ParseHeader(absl::string_view text) {
  std::set<std::string> keys;
  std::string error;
  const auto on_event = [&](int depth, json::parse_event_t event, json& value) {
    const bool opens = event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    if (opens && depth >= kSafetensorsHeaderDepthMax) error = "is nested too deeply";
    if (event == json::parse_event_t::key && depth == 1 && !keys.insert(value.get<std::string>()).second) {
      error = absl::StrFormat("names \"%s\" twice", value.get<std::string>());
    }
    return error.empty();
  };
  json header = json::parse(text.begin(), text.end(), on_event, /*allow_exceptions=*/false);
  if (!error.empty()) return absl::DataLossError(absl::StrCat("the header ", error));
  if (!header.is_object()) return absl::DataLossError("the header is not a JSON object");
  return header;
}

struct Entry {
  Safetensor tensor;
  uint64_t begin = 0, end = 0;
  bool left = false;  // integers that the caller does not need
};

absl::StatusOr<uint64_t> ReadNumber(const json& value, absl::string_view field) {
  if (!value.is_number_unsigned())
    return absl::DataLossError(absl::StrCat(field, " holds something other than counts"));
  return value.get<uint64_t>();
}

absl::StatusOr<Entry> ReadEntry(const std::string& name, const json& value, uint64_t data_bytes,
                                SafetensorsIntegers integers) {
  if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") || !value.contains("data_offsets")) {
    return absl::DataLossError("dtype, shape or data_offsets is missing");
  }
  const json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
  if (!dtype.is_string()) return absl::DataLossError("dtype is not text");
  const std::optional<v1::DataType> type = ParseDtype(dtype.get<std::string>());
  const size_t integer = integers == SafetensorsIntegers::kLeave ? IntegerBytes(dtype.get<std::string>()) : 0;
  if (!type.has_value() && integer == 0) {
    return absl::UnimplementedError(
        absl::StrFormat("dtype \"%s\" is not supported; convert it to F32, F16 or BF16", dtype.get<std::string>()));
  }
  if (!shape.is_array()) return absl::DataLossError("shape is not a list");
  if (!offsets.is_array() || offsets.size() != 2) return absl::DataLossError("data_offsets is not a pair");

  Entry entry;
  entry.tensor.name = name;
  entry.left = !type.has_value();
  entry.tensor.dtype = type.value_or(v1::FLOAT32);
  uint64_t bytes = entry.left ? integer : SizeOf(*type);
  for (const json& item : shape) {
    CAIRN_ASSIGN_OR_RETURN(const uint64_t dim, ReadNumber(item, "shape"));
    if (dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
        __builtin_mul_overflow(bytes, dim, &bytes)) {
      return absl::DataLossError("shape has more elements than can be counted");
    }
    entry.tensor.shape.push_back(static_cast<int64_t>(dim));
  }
  CAIRN_ASSIGN_OR_RETURN(entry.begin, ReadNumber(offsets[0], "data_offsets"));
  CAIRN_ASSIGN_OR_RETURN(entry.end, ReadNumber(offsets[1], "data_offsets"));
  if (entry.begin > entry.end || entry.end > data_bytes) {
    return absl::DataLossError(absl::StrFormat("data_offsets [%d,%d] are not within the file's %d bytes of data",
                                               entry.begin, entry.end, data_bytes));
  }
  if (entry.end - entry.begin != bytes) {
    return absl::DataLossError(absl::StrFormat("shape %s needs %d bytes, data_offsets hold %d",
                                               ToString(entry.tensor.shape), bytes, entry.end - entry.begin));
  }
  return entry;
}

absl::Status ReadMetadata(const json& value, std::map<std::string, std::string>& metadata) {
  if (!value.is_object()) return absl::DataLossError("__metadata__ is not an object");
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) return absl::DataLossError(absl::StrFormat("__metadata__: \"%s\" is not text", key));
    metadata[key] = text.get<std::string>();
  }
  return absl::OkStatus();
}

// The format demands that the tensors are contiguous.
absl::Status CheckCover(const std::vector<Entry>& entries, uint64_t data_bytes) {
  uint64_t at = 0;
  for (const Entry& e : entries) {
    if (e.begin != at) {
      return absl::DataLossError(absl::StrFormat("tensor \"%s\": its bytes begin at %d, the previous ones end at %d",
                                                 e.tensor.name, e.begin, at));
    }
    at = e.end;
  }
  if (at != data_bytes) {
    return absl::DataLossError(absl::StrFormat("the tensors end at %d, the data at %d", at, data_bytes));
  }
  return absl::OkStatus();
}

// start: of the file, at least 8 bytes where it has so many.
absl::StatusOr<uint64_t> HeaderBytes(absl::string_view start, uint64_t file_bytes) {
  uint64_t header_bytes = 0;
  if (start.size() < kLengthBytes) return absl::DataLossError("shorter than the 8 bytes of a header length");
  std::memcpy(&header_bytes, start.data(), kLengthBytes);
  if (header_bytes <= kSafetensorsHeaderBytesMax && header_bytes <= file_bytes - kLengthBytes) return header_bytes;
  return absl::DataLossError(
      absl::StrFormat("a header of %d bytes is announced in a file of %d; truncated, or not a safetensors file",
                      header_bytes, file_bytes));
}

// What the header says.
struct Layout {
  std::vector<Entry> entries;  // in the order of their bytes, which cover the data
  std::map<std::string, std::string> metadata;
};

absl::StatusOr<Layout> ParseLayout(absl::string_view text, uint64_t data_bytes, SafetensorsIntegers integers) {
  CAIRN_ASSIGN_OR_RETURN(const json header, ParseHeader(text));
  Layout layout;
  std::vector<Entry>& entries = layout.entries;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadataKey) {
      CAIRN_RETURN_IF_ERROR(ReadMetadata(value, layout.metadata));
      continue;
    }
    absl::StatusOr<Entry> entry = ReadEntry(name, value, data_bytes, integers);
    if (!entry.ok()) return Annotate(entry.status(), absl::StrFormat("tensor \"%s\"", name));
    entries.push_back(*std::move(entry));
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  CAIRN_RETURN_IF_ERROR(CheckCover(entries, data_bytes));
  return layout;
}

// data: null: it is not there.
SafetensorsFile FileOf(Layout layout, const Buffer* data) {
  SafetensorsFile file;
  file.metadata = std::move(layout.metadata);
  for (Entry& e : layout.entries) {
    if (e.left) continue;
    if (data != nullptr) e.tensor.data = data->Slice(e.begin, e.end - e.begin);
    file.tensors.push_back(std::move(e.tensor));
  }
  return file;
}

absl::StatusOr<SafetensorsFile> Parse(const Buffer& bytes, SafetensorsIntegers integers) {
  const absl::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  CAIRN_ASSIGN_OR_RETURN(const uint64_t header_bytes, HeaderBytes(all, all.size()));
  const Buffer data = bytes.Slice(kLengthBytes + header_bytes, bytes.size() - kLengthBytes - header_bytes);
  CAIRN_ASSIGN_OR_RETURN(Layout layout, ParseLayout(all.substr(kLengthBytes, header_bytes), data.size(), integers));
  return FileOf(std::move(layout), &data);
}

absl::StatusOr<SafetensorsFile> ReadHeader(const SafetensorsRange& read, uint64_t file_bytes,
                                           SafetensorsIntegers integers) {
  std::string start;
  if (file_bytes > 0) {
    CAIRN_ASSIGN_OR_RETURN(start, read(0, std::min<uint64_t>(file_bytes, kSafetensorsFirstReadBytes)));
  }
  CAIRN_ASSIGN_OR_RETURN(const uint64_t header_bytes, HeaderBytes(start, file_bytes));
  const uint64_t end = kLengthBytes + header_bytes;
  if (end > start.size()) {
    CAIRN_ASSIGN_OR_RETURN(const std::string rest, read(start.size(), end - start.size()));
    start += rest;
  }
  const absl::string_view header = absl::string_view(start).substr(kLengthBytes, header_bytes);
  CAIRN_ASSIGN_OR_RETURN(Layout layout, ParseLayout(header, file_bytes - end, integers));
  return FileOf(std::move(layout), nullptr);
}

}  // namespace

absl::Status WriteSafetensors(const std::string& path, const std::vector<SafetensorView>& tensors,
                              const std::map<std::string, std::string>& metadata, std::string* digest) {
  CAIRN_ASSIGN_OR_RETURN(const std::string header, MakeHeader(tensors, metadata));
  return WriteFileWhole(path,
                        [&](const std::string& beside) { return WriteFile(beside, path, header, tensors, digest); });
}

absl::Status WriteSafetensorsTo(const SafetensorsSink& sink, const std::vector<SafetensorView>& tensors,
                                const std::map<std::string, std::string>& metadata, std::string* digest) {
  CAIRN_ASSIGN_OR_RETURN(const std::string header, MakeHeader(tensors, metadata));
  uint64_t bytes = kLengthBytes + header.size();
  for (const SafetensorView& t : tensors) bytes += t.values.size() * sizeof(float);
  CAIRN_RETURN_IF_ERROR(sink.begin(bytes));
  return WriteBytes(header, tensors, sink.write, digest);
}

absl::StatusOr<SafetensorsFile> ReadSafetensors(const std::string& path, SafetensorsIntegers integers) {
  CAIRN_ASSIGN_OR_RETURN(const Buffer bytes, ReadFileBytes(path));
  return ParseSafetensors(bytes, path, integers);
}

absl::StatusOr<SafetensorsFile> ParseSafetensors(const Buffer& bytes, absl::string_view where,
                                                 SafetensorsIntegers integers) {
  absl::StatusOr<SafetensorsFile> file = Parse(bytes, integers);
  if (!file.ok()) return Annotate(file.status(), std::string(where));
  return file;
}

absl::StatusOr<SafetensorsFile> ReadSafetensorsHeader(const SafetensorsRange& read, uint64_t file_bytes,
                                                      absl::string_view where, SafetensorsIntegers integers) {
  absl::StatusOr<SafetensorsFile> file = ReadHeader(read, file_bytes, integers);
  if (!file.ok()) return Annotate(file.status(), std::string(where));
  return file;
}

}  // namespace cairn
